"""A Llama-like decoder with random weights, for the examples that only use a model: generate.py and finetune.py."""
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 32000


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)


def rotate(x, first):
    """Rotary positions: x is (batch, heads, length, width of a head), its first token stands at position `first`."""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(first, first + x.shape[-2], device=x.device)[:, None] * speed
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    one, two = x[..., :half], x[..., half:]
    return torch.cat((one * cosine - two * sine, two * cosine + one * sine), dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, past=None):
        """`past`: keys and values of the tokens before, or None. Returns them with this one's behind, too."""
        batch, length, width = x.shape
        q, k, v = (linear(x).view(batch, length, self.heads, -1).transpose(1, 2) for linear in (self.q, self.k, self.v))
        first = past[0].shape[-2] if past else 0
        q, k = rotate(q, first), rotate(k, first)
        if past:  # a cache that grows by copying, as most libraries have it
            k, v = torch.cat((past[0], k), dim=-2), torch.cat((past[1], v), dim=-2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width)), (k, v)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        inner = width * 8 // 3 // 256 * 256
        self.norm1, self.attention = Norm(width), Attention(width, heads)
        self.norm2 = Norm(width)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, past=None):
        attended, present = self.attention(self.norm1(x), past)
        x = x + attended
        inner = self.norm2(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner)), present


class Llama(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = Norm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)


def make(layers, width, heads):
    """On the GPU, in bfloat16."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama(layers, width, heads)
    torch.set_default_dtype(before)
    return model


def add_options(parser):
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
