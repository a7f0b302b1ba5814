"""Asks a server by the `openai` package of PyPI, in an interpreter that has it: what to ask is a JSON list on stdin, what came a JSON list on stdout.

    python openai_client.py PORT MODEL < questions.json

A question is {"kind": "chat" or "text", "prompt" or "messages", "stream": true, ...}, whose further keys are arguments of `create`. An answer is
{"texts": [...], "reasons": [...], "usage": {...}, "parts": N}, or {"error": CLASS, "status": N}.
"""
import json
import sys

import openai


def parts_of(stream, chat):
    """Of a streamed answer: texts and reasons by choice, usage, and how many parts it came in."""
    texts, reasons, usage, parts = {}, {}, None, 0
    for event in stream:
        parts += 1
        usage = event.usage or usage
        for choice in event.choices:
            part = (choice.delta.content or "") if chat else choice.text
            texts[choice.index] = texts.get(choice.index, "") + part
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return texts, reasons, usage, parts


def answer(client, model, question):
    kind, arguments = question.pop("kind"), {"model": model, **question}
    create = client.chat.completions.create if kind == "chat" else client.completions.create
    try:
        if question.get("stream"):
            texts, reasons, usage, parts = parts_of(create(stream_options={"include_usage": True}, **arguments), kind == "chat")
        else:
            whole = create(**arguments)
            texts = {choice.index: choice.message.content if kind == "chat" else choice.text for choice in whole.choices}
            reasons, usage, parts = {choice.index: choice.finish_reason for choice in whole.choices}, whole.usage, 1
    except openai.APIStatusError as error:
        return {"error": type(error).__name__, "status": error.status_code}
    return {"texts": [texts[index] for index in sorted(texts)], "reasons": [reasons[index] for index in sorted(reasons)],
            "usage": usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"}), "parts": parts}


if __name__ == "__main__":
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none", max_retries=0, timeout=120)
    models = [model.id for model in client.models.list()]
    assert models == [sys.argv[2]], models
    json.dump([answer(client, sys.argv[2], question) for question in json.load(sys.stdin)], sys.stdout)
