"""Content-addressed artifacts and the records of the stages that produced them."""
