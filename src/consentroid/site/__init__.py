"""What runs where the rows are: the worker that answers for one data holder."""
