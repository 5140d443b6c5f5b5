"""Gunicorn's configuration of a group: `gunicorn -c gunicorn_conf.py`.

From settings (SESSIONS_*) to gunicorn's own names, without logic of its own. Of gunicorn's
options, those for addresses (`--bind`), logs, user and pid file work as ever; those that
would break a group are refused with a reason.

Spec: docs/settings.md#gunicorn
"""

import os
import sys

from sessions.chassis import hooks
from sessions.chassis.logs import log_config
from sessions.chassis.refusals import stop_limit_s
from sessions.chassis.worker import GroupWorker

settings = hooks.load_settings(sys.argv, os.environ)

bind = settings.bind
workers = settings.worker_count
worker_class = GroupWorker
wsgi_app = "sessions.chassis.hooks:no_wsgi_app"
timeout = settings.timeout_s
graceful_timeout = stop_limit_s(settings)
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - gunicorn makes a private file in it
control_socket_disable = True
proc_name = "sessile"
logconfig_dict = log_config(settings.log_format)
on_starting = hooks.on_starting(settings)
