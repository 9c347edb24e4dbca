"""Classify texts by their language, with a character model for each, trained on three sentences."""

import chainrule as cr

SENTENCES = {
    "Dutch": "De kat slaapt op de bank. Waar is het station? Ik heb gisteren een boek gekocht.",
    "English": "The cat sleeps on the sofa. Where is the station? I bought a book yesterday.",
    "French": "Le chat dort sur le canapé. Où est la gare ? J'ai acheté un livre hier.",
    "German": "Die Katze schläft auf dem Sofa. Wo ist der Bahnhof? Ich habe gestern ein Buch gekauft.",
    "Italian": "Il gatto dorme sul divano. Dov'è la stazione? Ieri ho comprato un libro.",
}
UNKNOWN = [
    "Where did you buy the sofa?",
    "Der Hund schläft.",
    "Où dort le chien ?",
    "Ho un gatto.",
    "Waar slaapt de hond?",
]

texts = [(text, language) for language, text in SENTENCES.items()]
classifier = cr.train("bayes", texts, tokenizer="char", lm_settings="order=4")
for found in cr.classify(classifier, UNKNOWN):
    print(f"{found.label:8} {found.probability:.3f}  {found.text}")
