"""The room that knows Ultralytics from inside: named probes, and named, undoable patches of its engine and data sets.

The public names of the modules below are this package's own: callers write `hooks.say(...)`, not which file it is in.
Nothing here imports torch or Ultralytics before it is used. May import rooms from `telemetry` down to `utils`; what it
needs from above (who explains an error, who takes a trainer over) is passed in. A newcomer comes here when a release of
Ultralytics has moved something: what is relied on is a row in `probes`, and a patch is a `scoped_patch.attribute`.
"""

# ruff: noqa: F403
from .amp_check import *
from .arguments import *
from .checkpoints import *
from .children import *
from .distributed import *
from .everywhere import *
from .loaders import *
from .log import *
from .memory_errors import *
from .models import *
from .probes import *
from .ranks import *
from .resuming import *
from .train_steps import *
from .trainers import *
from .versions import *
