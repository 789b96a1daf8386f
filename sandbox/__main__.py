"""The command ``counterseal sandbox``: serves the stand-ins to other processes until SIGTERM or SIGINT.

Prints one JSON line with the URLs as soon as everything answers, and nothing else on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from sandbox.bpmn_config import BpmnConfig
from sandbox.model import ModelConfig
from sandbox.servicenow import ServiceNowConfig
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, sandbox_world


def _arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="counterseal sandbox", description=__doc__)
    for name in ("servicenow", "slack", "model"):
        parser.add_argument(f"--{name}-port", type=int, default=0, metavar="PORT", help="0 takes a free port")
    servicenow, slack, model = ServiceNowConfig(), SlackConfig(), ModelConfig()
    parser.add_argument("--webhook-url", default="", metavar="URL", help="told of what people do to incidents")
    parser.add_argument("--webhook-secret", default=servicenow.webhook_secret, metavar="SECRET")
    parser.add_argument("--webhook-encoding", default=servicenow.webhook_encoding, choices=["base64", "hex"])
    parser.add_argument("--interactivity-url", default="", metavar="URL", help="told of clicks and submissions")
    parser.add_argument("--signing-secret", default=slack.signing_secret, metavar="SECRET")
    parser.add_argument("--bot-token", default=slack.bot_token, metavar="TOKEN")
    parser.add_argument("--model-key", default=model.api_key, metavar="KEY")
    parser.add_argument("--bpmn-port", type=int, default=None, metavar="PORT", help="also run a BPMN engine here")
    parser.add_argument("--mcp-port", type=int, default=None, metavar="PORT", help="also run a server of tools here")
    parser.add_argument("--bpmn-callback-token", default="", metavar="TOKEN", help="what its processes report with")
    return parser.parse_args(arguments)


def _config(given: argparse.Namespace) -> SandboxConfig:
    return SandboxConfig(
        servicenow=ServiceNowConfig(
            port=given.servicenow_port,
            webhook_url=given.webhook_url,
            webhook_secret=given.webhook_secret,
            webhook_encoding=given.webhook_encoding,
        ),
        slack=SlackConfig(
            port=given.slack_port,
            interactivity_url=given.interactivity_url,
            signing_secret=given.signing_secret,
            bot_token=given.bot_token,
        ),
        model=ModelConfig(port=given.model_port, api_key=given.model_key),
        mcp_port=given.mcp_port,
        bpmn=None
        if given.bpmn_port is None
        else BpmnConfig(port=given.bpmn_port, callback_token=given.bpmn_callback_token),
    )


async def _serve(config: SandboxConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with sandbox_world(config) as world:
        sys.stdout.write(json.dumps(world.urls()) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal and return 0. Return 1, with the reason on stderr, if a port or a library is missing."""
    try:
        asyncio.run(_serve(_config(_arguments(arguments))))
    except (OSError, OverflowError) as error:
        sys.stderr.write(f"python -m sandbox: {error}; give another port, or 0 for a free one\n")
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "SpiffWorkflow":
            raise
        sys.stderr.write("python -m sandbox: --bpmn-port needs SpiffWorkflow: pip install 'counterseal[dev]'\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
