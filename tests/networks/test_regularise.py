from __future__ import annotations

import torch

from chainrule.networks.regularise import EmbeddingDropout, VariationalDropout, activation_penalty


def test_variational_dropout_has_one_mask_for_all_times() -> None:
    torch.manual_seed(1)
    ones_BTD = torch.ones(40, 5, 50)
    dropped_BTD = VariationalDropout(0.2)(ones_BTD)
    assert torch.equal(dropped_BTD, dropped_BTD[:, :1].expand(-1, 5, -1))
    # 1/(1 - 0.2) = 1.25 where it is kept
    assert set(dropped_BTD.unique().tolist()) == {0.0, 1.25}
    assert not torch.equal(dropped_BTD[0], dropped_BTD[1])
    # the mean of 2000 is 1, give or take five times sqrt(0.25 / 2000)
    assert abs(dropped_BTD[:, 0].mean() - 1) < 0.056


def test_embedding_dropout_leaves_out_tokens_everywhere() -> None:
    torch.manual_seed(1)
    ids_BT = torch.randint(500, (20, 50))
    dropped_BTD = EmbeddingDropout(0.5)(torch.ones(20, 50, 3), ids_BT, 500)
    for token in ids_BT.unique():
        values = dropped_BTD[ids_BT == token].unique().tolist()
        assert values in ([0.0], [2.0])
    kept = (dropped_BTD[..., 0] > 0).float().mean()
    assert 0.35 < kept < 0.65  # half of 500 tokens


def test_the_table_could_be_dropped_instead() -> None:
    """Dropping rows of the table before the lookup gives the same as dropping embeddings after it."""
    table_VD, ids_BT = torch.randn(6, 2), torch.tensor([[1, 3, 1], [5, 0, 4]])
    torch.manual_seed(1)
    mask_V = torch.nn.functional.dropout(torch.ones(6), 0.5)
    torch.manual_seed(1)
    assert torch.equal(EmbeddingDropout(0.5)(table_VD[ids_BT], ids_BT, 6), (table_VD * mask_V[:, None])[ids_BT])


def test_penalty_by_hand() -> None:
    raw_BTD = torch.tensor([[[1.0], [3.0], [2.0]]])
    dropped_BTD = torch.tensor([[[2.0], [0.0], [4.0]]])
    # AR: 0.5 (4 + 0 + 16) / 3; TAR: 0.25 ((3 - 1)² + (2 - 3)²) / 2
    all_BT = torch.ones(1, 3, dtype=torch.bool)
    found = activation_penalty(raw_BTD, dropped_BTD, all_BT, 0.5, 0.25)
    assert found is not None and found.item() == torch.tensor(20 / 6 + 5 / 8).item()
    # one time step has no change
    assert activation_penalty(raw_BTD[:, :1], dropped_BTD[:, :1], all_BT[:, :1], 0.0, 1.0) is None
    assert activation_penalty(raw_BTD, dropped_BTD, all_BT, 0.0, 0.0) is None


def test_padding_is_not_penalised() -> None:
    """The penalty of rows of 3, 1 and 0 tokens is that of the 4 tokens and their 2 pairs."""
    raw_BTD, dropped_BTD = torch.randn(3, 3, 2, dtype=torch.float64), torch.randn(3, 3, 2, dtype=torch.float64)
    is_token_BT = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    found = activation_penalty(raw_BTD, dropped_BTD, is_token_BT, 0.5, 0.25)
    squares = torch.cat([dropped_BTD[0], dropped_BTD[1, :1]]).square().mean()
    torch.testing.assert_close(found, 0.5 * squares + 0.25 * raw_BTD[0].diff(dim=0).square().mean())


def test_evaluation_leaves_everything_as_it_is() -> None:
    x_BTD, ids_BT = torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
    assert VariationalDropout(0.5).eval()(x_BTD) is x_BTD
    assert EmbeddingDropout(0.5).eval()(x_BTD, ids_BT, 1) is x_BTD
