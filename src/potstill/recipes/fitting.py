"""Where projections start for a student that was not cut from its teacher: at the linear map that its own states need.

Fitted in closed form on a few batches, before the first step; knows no files and no tokenizers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.recipes.distilling import Distilling
from potstill.recipes.reading import needs_projection, shared_name

__all__ = ["fit_projections"]

TOKENS = 10_000
_RIDGE = 1e-3


@torch.no_grad()
def fit_projections(program: Distilling, *, first: bool = True, tokens: int = TOKENS) -> None:
    """Set each projection to the ridge regression of the teacher's states on the student's, over all its layers.

    W = (XᵀX + λI)⁻¹·XᵀY with λ a thousandth of the mean of XᵀX's diagonal; a bias is the last row of it. A student that
    starts from another model then does not have to leave what it knows for a map drawn at random.

    Args:
        program: Its projections are changed in place; the student is in eval mode meanwhile.
        first: Whether those to the first teacher are fitted too, not those to further ones alone.
        tokens: Of how many the states are measured, about.
    """
    # Terms that are ramps from 0 too.
    terms = [t for t in program.declared if t.layers and needs_projection(t) and (first or t.teacher > 1)]
    if not terms or not len(program.projections):
        return
    student, seen = program.student, 0.0
    was_training = student.training
    student.eval()
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    for rows in program.batches(0):
        inputs = forward_inputs(student, program.data.encodings.batch(rows))
        said = program.guide.guidance(rows)
        theirs = [guidance.states for guidance in (said, *said.more)]
        read = [guide.heard(rows) for guide in (program.guide, *program.guide.more)]
        choose_attention(student, inputs["input_ids"].shape[1], backward=False)
        student(**inputs)
        assert program.states is not None
        real = torch.ones_like(inputs["input_ids"], dtype=torch.bool)
        real = inputs["attention_mask"].bool() if "attention_mask" in inputs else real
        for term in terms:
            states, heard = theirs[term.teacher - 1], read[term.teacher - 1]
            assert states is not None
            kept = real if heard is None else torch.from_numpy(heard).to(real.device)
            name = shared_name(term)
            for own, layer in term.layers:
                pair = program.states.hidden[own][kept].double(), states.hidden[layer][kept].double()
                _add(sums, name if name in program.projections else term.name, program.projections, pair)
        for each in (program.states, *theirs):
            if each is not None:
                each.clear()
        seen += float(real.sum())
        if seen >= tokens:
            break
    student.train(was_training)
    for name, (square, cross) in sums.items():
        linear = program.projections[name]
        assert isinstance(linear, nn.Linear)
        ridge = _RIDGE * square.diagonal().mean() * torch.eye(len(square), dtype=square.dtype, device=square.device)
        solved = torch.linalg.solve(square + ridge, cross)
        linear.weight.copy_(solved[: linear.in_features].T)
        if linear.bias is not None:
            linear.bias.copy_(solved[-1])


def _add(sums: dict[str, tuple[Tensor, Tensor]], name: str, projections: nn.ModuleDict, pair: Sequence[Tensor]) -> None:
    """Add XᵀX and XᵀY of a batch; X has a column of ones where the projection has a bias."""
    linear = projections[name]
    assert isinstance(linear, nn.Linear)
    own, theirs = pair
    if linear.bias is not None:
        own = torch.cat([own, torch.ones_like(own[:, :1])], dim=1)
    square, cross = sums.get(name, (torch.zeros((), dtype=own.dtype), torch.zeros((), dtype=own.dtype)))
    sums[name] = square.to(own.device) + own.T @ own, cross.to(own.device) + own.T @ theirs
