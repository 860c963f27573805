"""One line about each sampling setting: what help, the preset schema and new preset files say of it."""

SETTINGS: dict[str, str] = {
    "temperature": "Divides the logits: below 1 is safer, above 1 bolder, 0 always takes the likeliest token.",
    "top_k": "Keeps the k likeliest tokens; 0 keeps all.",
    "top_p": "Keeps the smallest set of tokens whose probability reaches p; 1 keeps all.",
    "min_p": "Drops tokens less likely than min_p times the likeliest; 0 drops none.",
    "typical_p": "Keeps the most typical tokens whose probability reaches p; 1 keeps all.",
    "repetition_penalty": "Makes tokens of prompt and output less likely; 1 changes nothing.",
    "frequency_penalty": "Lowers a token's logit for each time it was written; 0 changes nothing.",
    "presence_penalty": "Lowers a token's logit once it was written; 0 changes nothing.",
    "no_repeat_ngram_size": "Bans every n-gram that would stand twice; 0 bans none.",
    "logit_bias": "Added to the logits of token ids, such as {50256: -100}; -.inf bans a token.",
    "max_new_tokens": "Ends the text after this many tokens.",
    "stop": 'A text or a list of texts that end the output; in double quotes, "\\n" is a line break.',
    "ignore_eos": "True writes on past the model's end tokens.",
    "end_token_ids": "Token ids that end the text besides the model's own.",
    "seed": "Fixes the random numbers, so that a run can be repeated.",
}
