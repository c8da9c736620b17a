#!/usr/bin/env python3
"""Compares how signet cuts text by the expressions of a tokenizer.json with Oniguruma, whose syntax they are
written in: those of well-known tokenizers, those that PCRE2 reads otherwise, and random ones. What signet
refuses must be named.

    tests/text/reference_words.py SIGNET [RANDOM_EXPRESSIONS [SEED]]

Exits with 77 (skipped) where libonig is not installed. Where the Python package `tokenizers` is, Oniguruma's
answers are compared with its.
"""
import ctypes
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

SIGNET = pathlib.Path(sys.argv[1]).resolve()
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 60
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
try:
    ONIG = ctypes.CDLL("libonig.so.5")
except OSError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import tokenizers
except ImportError:
    tokenizers = None

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
KNOWN = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "GPT-2 of tiktoken": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k, Llama 3": CL100K,
    "cl100k of tiktoken": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": LETTERS + r"*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" + LETTERS
             + r"+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen2": CL100K.replace("{1,3}", ""),
    "BLOOM": " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "DeepSeek-V3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "DeepSeek-V3, digits": r"\p{N}{1,3}",
    "DeepSeek-V3, Chinese": "[一-龥぀-ゟ゠-ヿ]+",
    "DeepSeek LLM, line ends": "[\r\n]",
    "DeepSeek LLM, letters": r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
    "Cohere Command R, StarCoder": r"\d|" + r"'s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "digits from the right": r"\d{1,3}(?=(?:\d{3})*\b)",
    "thousands": r"(?<!\d)\d{1,3}(?=(?:\d{3})+(?!\d))|\d{3}",
}
MAY_BE_REFUSED = {"digits from the right"}
# Where the two syntaxes, or what looks alike in them, part.
PARTED = [r"\p{N}{1,3}+", r"a{2}?", r"a{2}+", r"xa{1,2}?", r"xa{,2}", r"xa{,2}?", r"a{,}", r"a{x", r"a{2}{2}", r"a**b",
          r"a?+a", r"a*+?b", r"(?:a?){2,3}+b", r"\s+$", r"\s+\Z", r"\s+\z", r"^.", r"^\s", r"\w+", r"\W", r"[\w]+", r"[^\w\s]+",
          r"\s", r"[\d]+", r"x(?i)a|b", r"a|(?i)b|c", r"(?:a(?i)b|c)a", r"(?i)a(?-i)b|c", r"(?i:s)", r"(?i:k)", r"(?i:[^s])",
          r"(?i:[a-t])+", r"(?i:s[s])", r"(?i:s+s)", r"(?i:s{2})", r"(?i:\p{Lu})", r"(?i:\w)", r"(?i:i)", r"(?i:ss)", r"(?i:st)",
          r"(?i:s(?:s))", r"(?i:ß)", r"(?i:[ß])", r"(?i:[\p{Lu}])", r"(?i:’s)", r"[a[]b]]", r"[a[]b]]+", r"[]a]+", r"[^]a]+",
          r"[a[bs]c]+", r"[[a]-c]+", r"[a-[c]]+", r"[a-c-s]+", r"[\w-]+", r"[-a]+", r"[\w-s]", r"[:a]+", r"[[:alpha:]]+", r"[a&b]+",
          r"[a-z&&[^b]]+", r"[a[^b]]", r"\p{Han}+", r"[^\p{Han}]+", r"\p{^L}+", r"\P{^L}+", r"\pL", r"\v", r"\h", r"\e", r"\R",
          r"\x61", r"\x{DF}", r"\u00df", r"\xc3\x9f", r"a\b", r"\Ga", r"a\K", r"\1", r"\X", r"(?m:.)", r"(?<n>a)b", r"(?<=a|bc)s",
          r"(?<=ab?)c", r"(?>a+)b", r"(?#a)b", r"(*a)", r"(?=a)*b", r"a|*", r"]", r"{", r"\_", r"\é", r"."]
ALPHABET = list("aabcsStkKfixAB12 _-&'[]{}.") + ["\n", "\n", "\r\n", "\t", "²", "¼", "é", "É", "ß", "ſ", "K", "ﬆ", "İ", "’", "\u0301",
                                               "\u0345", "Ⓐ", "Ⅷ", "一", "、", "々", "\u00a0", "\u180e", "\u2028", "\u0085", "٣"]
CHARACTERS = [chr(c) for c in range(0x20, 0x2FFFF) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
SENTENCES = ["in 2026.", "I'LL  say: it's 'S x86_64, e\u0301t\u00e9  \n\n  12345678 ", "b \n", "don't\r\n\r\nIF(a[b]==「漢字、かな」)  ", "ﬁne ſtreet’s",
             "हिन्दी, العربية ١٢٣۔ ", "CamelCaseHTTPServer's\t\t\tend"]


class Region(ctypes.Structure):
    _fields_ = [("allocated", ctypes.c_int), ("count", ctypes.c_int), ("begin", ctypes.POINTER(ctypes.c_int)),
                ("end", ctypes.POINTER(ctypes.c_int)), ("history", ctypes.c_void_p)]


class Oniguruma:
    encoding = ctypes.addressof(ctypes.c_char.in_dll(ONIG, "OnigEncodingUTF8"))
    syntax = ctypes.c_void_p.in_dll(ONIG, "OnigDefaultSyntax")  # tokenizers takes the default, too
    ONIG.onig_region_new.restype = ctypes.POINTER(Region)
    ONIG.onig_initialize((ctypes.c_void_p * 1)(encoding), 1)

    def __init__(self, expression):
        begin, end, self.keep = self.span(expression.encode())
        self.code = ctypes.c_void_p()
        info = (ctypes.c_void_p * 3)()
        if status := ONIG.onig_new(ctypes.byref(self.code), begin, end, 0, ctypes.c_void_p(self.encoding), self.syntax, info):
            raise ValueError(status)

    @staticmethod
    def span(data):
        buffer = ctypes.create_string_buffer(data)
        begin = ctypes.addressof(buffer)
        return ctypes.c_void_p(begin), ctypes.c_void_p(begin + len(data)), buffer

    def words(self, text):
        """Matches, and what lies between them."""
        data = text.encode()
        begin, end, keep = self.span(data)
        region = ONIG.onig_region_new()
        cuts, at = {0, len(data)}, 0
        while at < len(data):
            start = ctypes.c_void_p(begin.value + at)
            if ONIG.onig_search(self.code, begin, end, start, end, region, 0) < 0:
                break
            first, last = region.contents.begin[0], region.contents.end[0]
            cuts |= {first, last}
            at = last if last > first else last + len(data[last:].decode()[:1].encode())
        ONIG.onig_region_free(region, 1)
        return [data[a:b].decode() for a, b in itertools.pairwise(sorted(cuts))]


def symbols():
    """GPT-2's character for each byte."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    other = iter(range(256, 512))
    return [chr(b if b in plain else next(other)) for b in range(256)]


SYMBOLS = symbols()


def signet_words(expression, texts, folder):
    """None, and the message, where the expression is refused."""
    pieces = {text[i:j].encode() for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    vocabulary = [bytes([b]) for b in range(256)] + sorted(p for p in pieces if len(p) > 1)
    names = {"".join(SYMBOLS[b] for b in piece): i for i, piece in enumerate(vocabulary)}
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    tokenizer = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
                 "model": {"type": "BPE", "ignore_merges": True, "vocab": names, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run = subprocess.run([SIGNET, "tokenizer", "encode", folder / "texts.jsonl", "--tokenizer", folder / "tokenizer.json"],
                         capture_output=True, text=True)
    if run.returncode:
        return None, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == len(texts), (expression, len(lines), len(texts))
    return [[vocabulary[int(i)].decode() for i in line.split()] for line in lines], ""


def random_expression(rng, depth=2):
    """Mostly what signet reads, written in every way."""
    def member():
        return rng.choice(["a", "b", "s", "S", "b-k", "1", "²", "é", "_", " ", r"\n", r"\s", r"\w", r"\d", r"\p{L}", r"\p{Lu}", r"\S", "&", "-", "[sK]",
                           "[b[1]]", ".", "'", r"\]", r"\-", "^", r"\x{DF}", "]"])

    def element(depth):
        times = rng.choice(["", "", "", "?", "*", "+", "+", "++", "*?", "??", "{2}", "{1,2}", "{2,}", "{,2}", "{2}?", "{1,2}?", "{1,2}+", "{2}+", "+?*",
                            "{1,2}??"])
        kind = rng.randrange(14 if depth else 11)
        if kind < 4:
            return rng.choice(["a", "b", "s", "S", "t", "k", "f", "i", "1", " ", "'", "_", "ß", "{", "]", "一", "-"]) + times
        if kind < 7:
            return rng.choice([r"\s", r"\w", r"\W", r"\d", r"\D", r"\S", ".", r"\p{L}", r"\p{Lu}", r"\P{N}", r"\p{Han}", r"\n"]) + times
        if kind == 7:
            return rng.choice(["$", "^", r"\Z", r"\z", r"\A"])
        if kind < 11:
            return "[" + rng.choice(["", "", "^"]) + "".join(member() for _ in range(rng.randrange(1, 4))) + "]" + times
        opening = rng.choice(["(", "(?:", "(?:", "(?i:", "(?i:", "(?>", "(?i)", "(?-i:", "(?<x>", "(?=", "(?!", "(?<=", "(?<!"])
        if opening in ("(?=", "(?!", "(?<=", "(?<!"):
            return opening + rng.choice(["a", "s|t", r"\w", r"\s", r"[^\s]", r"\n"]) + ")"
        return opening + alternatives(depth - 1) + ("" if opening == "(?i)" else ")" + times)

    def alternatives(depth):
        return "|".join("".join(element(depth) for _ in range(rng.randrange(1, 4))) for _ in range(rng.choice([1, 1, 2])))

    return alternatives(depth) + rng.choice(["", "[ab1]", r"\S", "[^a]"])


def main():
    rng = random.Random(SEED)
    jobs = [(name, expression, name not in MAY_BE_REFUSED) for name, expression in KNOWN.items()]
    jobs += [("", expression, False) for expression in PARTED]
    jobs += [("", random_expression(rng), False) for _ in range(COUNT)]
    wrong = refused = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, expression, must in jobs:
            texts = SENTENCES + ["".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 11))) for _ in range(60)]
            texts += ["".join(rng.choice(CHARACTERS) + rng.choice(["", " ", "\n", "s", "1"]) for _ in range(6)) for _ in range(20)]
            ours, message = signet_words(expression, texts, pathlib.Path(folder))
            if ours is None:
                refused += 1
                if must or "expression '" not in message:
                    wrong += 1
                    print(f"  {name or expression}: refused: {message.strip()}")
                continue
            try:
                code = Oniguruma(expression)
            except ValueError:
                continue
            compared += 1
            split = tokenizers and tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
            for text, words in zip(texts, ours):
                right = code.words(text)
                if split and (theirs := [word for word, _ in split.pre_tokenize_str(text)]) != right:
                    sys.exit(f"{expression}: {text!r} is {right} to libonig and {theirs} to tokenizers")
                if words != right:
                    wrong += 1
                    print(f"  {name or expression}: {text!r} is {words}, and {right} to Oniguruma")
                    break
    print(f"{compared} expressions compared, {refused} refused, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
