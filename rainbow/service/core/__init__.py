"""What every verb of the service uses."""
