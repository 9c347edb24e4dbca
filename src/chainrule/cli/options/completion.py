"""`chainrule completion`: the shell completes verbs, options, kinds and tokenizers."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  echo 'eval "$(chainrule completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(chainrule completion zsh)"' >> ~/.zshrc
    fish:  chainrule completion fish > ~/.config/fish/completions/chainrule.fish
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(
        maker(click.get_current_context().find_root().command, {}, "chainrule", "_CHAINRULE_COMPLETE").source()
    )
