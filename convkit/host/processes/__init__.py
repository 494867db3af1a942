"""Worker processes as the host starts, feeds and ends them."""
