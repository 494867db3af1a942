"""What an app sees of a package: names, types, images, metadata."""
