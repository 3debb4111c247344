"""What a request says of one site → requests that every backend understands, or why the site refuses it."""
