"""What is published of a run: the model card and the upload to the Hub."""
