"""Content-addressed artifacts and the records of the stages that made them."""
