"""Every row of the paper's Table 3 in full size, on a text of the user's own."""

from __future__ import annotations

import dataclasses

from dragoman.lab.experiment import Experiment, Text
from dragoman.lab.experiments import table3
from dragoman.presets import PRESETS

_AS_PUBLISHED = Text("As in the paper.", "与论文一致。")

EXPERIMENT: Experiment = dataclasses.replace(
    table3.EXPERIMENT,
    name="table3-full",
    number=24,
    version=1,
    title=Text("Table 3 of the paper in full size", "论文表 3（原尺寸）"),
    question=Text(
        "Does each row of the paper's Table 3 point the same way on your own text?",
        "用你自己的数据时，论文表 3 的每一行是否指向同一方向？",
    ),
    settings=PRESETS["paper-base"].settings,
    steps=100_000,
    quick_steps=10_000,
    variants=table3.rows(1),
    claims=table3.guard(
        tuple(
            dataclasses.replace(claim, prediction=_AS_PUBLISHED, expected=("confirmed",))
            for claim in table3.CLAIMS
        ),
        least=10.0,  # sentences are harder than phrases
    ),
    data=None,
    why=Text(
        "Table 3 varies one choice at a time in the base model. All rows have its 100,000 steps of "
        "25,000 tokens, the big model too, to which the paper gave 300,000; and the weights of the "
        "last step are taken, where the paper averages the last five checkpoints. Rows are judged "
        "by perplexity, to which every token counts; where dropout or smoothing changes how sure a "
        "model is, by BLEU.",
        "表 3 在 base 模型上每次只改一个选择。所有行都训练 10 万步，每步 25000 个词元；"
        "big 也一样，而论文给了它 30 万步。这里取最后一步的权重，论文则平均最后五个检查点。"
        "各行按困惑度判定，因为每个词元都计入其中；"
        "但 dropout 或平滑会改变模型的自信程度，涉及它们的行按 BLEU 判定。",
    ),
    formula="d_model, d_ff, d_k, d_v, N, h, P_drop, eps_ls: the paper's",
)
