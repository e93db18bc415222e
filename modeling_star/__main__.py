"""`python -m modeling_star COMMAND ...`, and `accelerate launch -m modeling_star COMMAND ...`."""

from modeling_star.commands import main


if __name__ == "__main__":
    main()
