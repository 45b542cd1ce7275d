"""Text from a causal language model: the likeliest next token is appended, and all of it is read again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError, ModelError, first_line
from spikecast.network.answers import at_step, named_part
from spikecast.network.base import Network


@torch.no_grad()
def generate(
    network: Network,
    tokens: Tensor,
    max_new_tokens: int = 20,
    *,
    num_steps: int | None = None,
    stop: int | None = None,
) -> Tensor:
    """Append the likeliest next tokens of a causal language model, one after the other.

    There is no cache: each new token runs the whole text.

    Args:
        network: A converted language model that takes tokens, and maybe attention_mask.
        tokens: Whole numbers [B, L].
        max_new_tokens: How many to append at most; 1 or more.
        num_steps: Time-steps of each run; the network's own unless given.
        stop: The token that ends a text; it is repeated until all texts have ended.

    Returns:
        The tokens with the new ones behind them: [B, L + max_new_tokens] at most.

    Example:
        >>> words = torch.tensor([[1, 2, 3]])
        >>> speaker = nn.Sequential(nn.Embedding(8, 4), nn.ReLU(), nn.Linear(4, 8)).eval()
        >>> spikecast.generate(spikecast.convert(speaker, [words]), words, max_new_tokens=5).shape
        torch.Size([1, 8])
    """
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.numel() == 0:
        raise DataError(f"tokens of shape {tuple(tokens.shape)}, {tokens.dtype}: give whole numbers [B, L], L above 0")
    if max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens={max_new_tokens!r} must be a whole number of at least 1")
    names = _argument_names(network)
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        given = {name: torch.ones_like(tokens) if i else tokens for i, name in enumerate(names)}
        following = _scores(network, given, network.config.steps_or(num_steps))[:, -1].argmax(-1)
        if stop is not None:
            following = following.masked_fill(ended, stop)
            ended |= following == stop
        tokens = torch.cat([tokens, following.to(tokens).unsqueeze(1)], 1)
        if bool(ended.all()):
            break
    return tokens


def _argument_names(network: Network) -> list[str]:
    """What the network is called with: tokens, and a mask where it was converted with one."""
    binder = network.binder()
    names = [*binder.required, *binder.required_names]
    if names[1:] not in ([], ["attention_mask"]):
        raise DataError(
            f"generate gives a network tokens, and attention_mask; this one takes {', '.join(names)}: convert it with "
            "batches of tokens only"
        )
    return names or ["tokens"]


def _scores(network: Network, given: dict[str, Tensor], num_steps: int) -> Tensor:
    """The scores [B, L, V] after the last step."""
    first, *others = given
    is_named = first in network.binder().required_names
    args, kwargs = ((), given) if is_named else ((given[first],), {name: given[name] for name in others})
    length = given[first].shape[1]
    try:
        answer: Any = at_step(network.run_with((args, kwargs), num_steps), -1)
    except (IndexError, RuntimeError, ModelError) as error:
        raise DataError(
            f"the network cannot take {length} tokens ({first_line(error)}); give fewer, and none beyond its vocabulary"
        ) from error
    found = named_part(answer, "logits")
    if not isinstance(found, Tensor) or found.dim() != 3 or found.shape[1] != length:
        raise DataError('generate needs scores [B, L, V] of the next token, as a tensor or called "logits"')
    return found
