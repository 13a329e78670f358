"""torch's own samples of its convolution and normalisation functions."""

from __future__ import annotations

import torch
from torch.testing._internal.common_methods_invocations import op_db

# The import above forbids assignments to torch.backends flags for the rest of the process; Ultralytics makes them.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True

CONVOLUTIONS = [op for op in op_db if op.name.startswith("nn.functional.conv")]
NORMALISATIONS = [op for op in op_db if "batch_norm" in op.name and not op.variant_test_name]
