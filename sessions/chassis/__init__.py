"""The gunicorn worker class and hooks: roles, refusals, deaths."""
