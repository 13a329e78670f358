"""The loss of Ultralytics' detectors, its largest parts by kernels of ours instead of hundreds of operations.

Of Ultralytics only classes are patched, and only where their code is known, by its words: neither comments nor the
number of a release make a difference. Subclasses, as those for rotated boxes, and whatever a kernel is not made for
stay as they are. The cross entropy of logits is a function of torch, and has its place in `losses.logits`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .probes import FUSED_LOSSES, found_at, missing_now
from .sources import LOSSES, wrapped_by_us

_EXPONENTS: Final = (0.5, 6.0)  # of probability and overlap in the metric that the kernel computes


@contextmanager
def fused_losses() -> Iterator[None]:
    """Compute losses by kernels of ours while the context is open, where there is Triton for the device.

    Nested and concurrent use counts. Where somebody has put something else in the place of a part of the loss, or does
    so later, that is what is computed.
    """
    from ..losses.logits import fused_logit_losses

    with ExitStack() as undo:
        undo.enter_context(fused_logit_losses())  # a function of torch: the same for every release
        if not missing_now(FUSED_LOSSES):
            assigner = attribute("ultralytics.utils.tal:TaskAlignedAssigner", "get_pos_mask")
            undo.enter_context(assigner.on(_candidates, "losses"))
            undo.enter_context(attribute("ultralytics.utils.loss:BboxLoss", "forward").on(_box_losses, "losses"))
        yield


def _parts_kept(replaced: str) -> Callable[[Any], bool]:
    """Return whether nobody has replaced what the original calls since, of all objects or of the one that is asked.

    Args:
        replaced: Place of the function that ours takes the place of, which is none of these.
    """
    module = replaced.split(".")[2]
    others = [place.rpartition(".") for place in LOSSES if place.split(".")[2] == module and place != replaced]
    before = [(found_at(owner), name, found_at(f"{owner}.{name}")) for owner, _, name in others]

    def kept(owner: Any) -> bool:
        own = vars(owner)
        return all(getattr(place, name) is value and name not in own for place, name, value in before)

    return kept


def _candidates(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from ultralytics.utils.tal import TaskAlignedAssigner

    from ..losses import boxes, proof
    from ..losses.plain import is_plain
    from ..losses.proof import State, Use

    parts_kept = _parts_kept("ultralytics.utils.tal.TaskAlignedAssigner.get_pos_mask")

    @functools.wraps(original)
    def get_pos_mask(self: Any, *given: Any, **named: Any) -> Any:
        if (
            named
            or len(given) != 6
            or type(self) is not TaskAlignedAssigner
            or (self.alpha, self.beta) != _EXPONENTS
            or not parts_kept(self)
            or not is_plain(*given)
            or {given[1].dtype, given[3].dtype} != {torch.float32}  # the boxes
            or (torch.is_grad_enabled() and any(each.requires_grad for each in given))  # kernels give no gradients
        ):
            return original(self, *given, **named)
        pd_scores, pd_bboxes, gt_labels, gt_bboxes, anc_points, mask_gt = given
        use = Use(boxes.CANDIDATES, pd_scores.device, pd_scores.dtype)
        state = proof.state(use)
        if state is State.NO:
            return original(self, *given)

        def ours() -> Any:
            return boxes.candidates(
                pd_scores, pd_bboxes, anc_points, gt_labels, gt_bboxes, mask_gt, float(self.stride_val)
            )

        if state is State.UNPROVEN:
            found = original(self, *given)

            def right() -> Any:
                within = self.select_candidates_in_gts(anc_points, gt_bboxes, mask_gt) & mask_gt.bool()
                return within.float(), *found[1:]

            if not proof.prove(use, lambda: [each.float() for each in ours()], right):
                return found
        inside, metric, overlaps = ours()
        mask = self.select_topk_candidates(metric, topk_mask=mask_gt.expand(-1, -1, self.topk).bool())
        return mask.mul_(inside), metric, overlaps

    wrapped_by_us.add(get_pos_mask)
    return get_pos_mask


def _box_losses(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from ultralytics.utils.loss import BboxLoss, DFLoss

    from ..losses import boxes, proof
    from ..losses.plain import is_plain
    from ..losses.proof import State, Use

    parts_kept = _parts_kept("ultralytics.utils.loss.BboxLoss.forward")

    def ours(dist: Any, predicted: Any, points: Any, targets: Any, scores: Any, total: Any, chosen: Any) -> Any:
        return tuple(each / total for each in boxes.box_losses(dist, predicted, points, targets, scores, chosen))

    @functools.wraps(original)
    def forward(
        self: Any,
        pred_dist: Any,
        pred_bboxes: Any,
        anchor_points: Any,
        target_bboxes: Any,
        target_scores: Any,
        target_scores_sum: Any,
        fg_mask: Any,
        imgsz: Any,
        stride: Any,
    ) -> Any:
        of_ours = (pred_dist, pred_bboxes, anchor_points, target_bboxes, target_scores, target_scores_sum, fg_mask)
        if (
            type(self) is not BboxLoss
            or type(self.dfl_loss) is not DFLoss  # distances are numbers, not distributions
            or not parts_kept(self)
            or not is_plain(*of_ours)
            or pred_dist.shape[2] != 4 * self.dfl_loss.reg_max
            or fg_mask.dtype != torch.bool
            or any(each.requires_grad for each in of_ours[2:])
        ):
            return original(self, *of_ours, imgsz, stride)
        kind = (pred_dist.shape[2], *(each.dtype for each in of_ours))
        use = Use(boxes.BOX_LOSSES, pred_dist.device, pred_dist.dtype, kind)
        state = proof.state(use)
        if state is State.NO:
            return original(self, *of_ours, imgsz, stride)
        if state is State.PROVEN:
            return ours(*of_ours)

        def with_gradients(losses: Callable[..., Any], *more: Any) -> Any:
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in of_ours[:2]]
                found = losses(*leaves, *of_ours[2:], *more)
                # Of a sum, not of a mean over a batch: gradients in fp16 are for a loss that is scaled.
                grads = torch.autograd.grad(sum(found) * target_scores_sum, leaves)
            return *(each.detach() for each in found), *grads

        right = functools.partial(with_gradients, functools.partial(original, self), imgsz, stride)
        # In inference mode there are no gradients to compare.
        if not torch.is_inference_mode_enabled() and proof.prove(use, lambda: with_gradients(ours), right):
            return ours(*of_ours)
        return original(self, *of_ours, imgsz, stride)

    wrapped_by_us.add(forward)
    return forward
