"""What each kind of document says to people, as blocks; a renderer draws them."""
