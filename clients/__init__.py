"""Programs that speak to a server by HTTP only."""
