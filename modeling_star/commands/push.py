"""
Upload a trained model with its tokenizer, card and reports to the Hub.

    hf auth login
    modeling-star push outputs/wnut17 yourname/star-wnut17 --private
    modeling-star push outputs/wnut17 yourname/star-wnut17 --dry_run    # only lists the files

Checkpoints, pickles and predictions are not uploaded, as with --push_to_hub in training; predictions hold texts of
validation and test, and --predictions uploads them. A card of --card_examples shows such texts too, and --examples
uploads it. The model's code is uploaded with it, so that AutoModel.from_pretrained("yourname/star-wnut17",
trust_remote_code=True) works without this package.
"""

import argparse
from pathlib import Path


def main() -> None:
    """Read the arguments, check the folder, upload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="output folder of `ner`, `glue`, ...")
    parser.add_argument("repo", metavar="NAME/MODEL", help="repository on the Hub; created if needed")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--message", default="Upload model", help='commit message (default: "Upload model")')
    parser.add_argument("--dry_run", action="store_true", help="list the files and upload nothing")
    parser.add_argument("--predictions", action="store_true", help="upload predictions, with the texts in them")
    parser.add_argument("--examples", action="store_true", help="upload a card that shows examples from the data")
    arguments = parser.parse_args()

    from ..publish.hub import files_to_share, upload
    from ..runs.cli_errors import command_messages

    with command_messages("modeling-star push"):
        files = files_to_share(arguments.folder, arguments.predictions, arguments.examples)
        for path in files:
            print(f"{(arguments.folder / path).stat().st_size:>12,}  {path}")
        if arguments.dry_run:
            return
        commit = upload(
            arguments.folder, files, arguments.repo, private=arguments.private or None, message=arguments.message
        )
    print(commit.commit_url)
