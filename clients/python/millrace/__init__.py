"""The Python client of Millrace. It needs the standard library only, and knows of Millrace what the
contracts say on the wire.

A :class:`Client` owns the connections, the credentials and the retries. Each contract is a class of
its own on top of it::

    Client ─┬─ Relay ─────── Worker      queues for workers of your own
            ├─ ForgeRun                  simulated jobs with schedules, reports and webhooks
            ├─ TaskFlow                  jobs that depend on one another
            ├─ FetchBox                  downloads of what a manifest lists
            ├─ Images                    variants of uploaded pictures
            ├─ WorkerAPI ─── JobWorker   execution of the jobs of all contracts but Relay
            └─ Admin                     what operators see and change, over all contracts

A first job, and a worker that runs it::

    import millrace

    relay = millrace.Client("http://127.0.0.1:8080").relay()
    relay.enqueue(millrace.RelaySpec("mail", "welcome-42", timeout=30, payload={"to": "a@b.org"}))

    def send(run):
        print("sending to", run.job.payload["to"])

    millrace.Worker(relay, "mail", send).run(handle_signals=True)

Every call fails with an :class:`Error`; its subclasses are the kinds to catch. A call is one or
several tries, each an HTTP request. A try is repeated when the server asks for it (429, 503), when
a gateway has no server behind it (502, 504) and when the connection fails. The pauses follow
exponential backoff with full jitter and are never shorter than Retry-After, until :class:`Retry` is
used up or the timeout has passed. A try whose answer was lost may have taken effect: the text of
each method says what a repeat does then, and :attr:`Error.uncertain` reports that it may have
happened.

Payloads, states and results are JSON values, or :class:`RawJSON`. Times are aware
:class:`datetime.datetime` objects, in UTC where they come from the server. Durations are seconds.
"""

from ._http import Retry as Retry
from ._wire import UNSET as UNSET
from ._wire import RawJSON as RawJSON
from .admin import *
from .admin_fleet_types import *
from .admin_types import *
from .client import *
from .errors import *
from .fetchbox import *
from .fetchbox_types import *
from .forgerun import *
from .forgerun_types import *
from .images import *
from .images_types import *
from .job_worker import *
from .relay import *
from .taskflow import *
from .taskflow_types import *
from .version import __version__ as __version__
from .webhook import *
from .worker import *
from .worker_api import *
