"""Words that are never replaced: English closed-class words, whose WordNet entries mean something else.

WordNet has only nouns, verbs, adjectives and adverbs. In it, "a" is an angstrom, "in" is indium, "I" is iodine, "be" is
beryllium, "as" is arsenic, "it" is information technology and "one" is a digit. Auxiliaries, number words, quantifiers
and light verbs ("have gone", "going to") have entries, but for other uses of the word. CBCL (section 4.4) replaces
"each word"; it cannot mean these words.
"""

_TEXT = """
a an the this that these those such same other another own each every either neither both all any some no none
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones oneself who whom whose which what whatever whoever whichever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing somewhere anywhere
everywhere nowhere there here then now thus so hence where when why how wherever whenever however therefore
and or but nor yet if unless because since although though while whereas whether than as lest
about above across after against along alongside amid among around at atop before behind below beneath beside besides
between beyond by concerning despite down during except for from in inside into like minus near next of off on onto out
outside over past per plus regarding round throughout through till to toward towards under underneath unlike until up
upon via with within without away back forth apart aside ahead
am is are was were be been being have has had having do does did doing done can could may might must shall should will
would ought need dare used let lets got get gets getting gotten go goes going gone went
not never ever also too very just only even still again already almost quite rather more most less least much many few
fewer several enough lot lots else instead maybe perhaps yes no ok okay oh ah please well
better best worse worst further farther
zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions
billion billions trillion dozen dozens half quarter once twice first second third fourth fifth sixth seventh eighth
ninth tenth last
don doesn didn isn aren wasn weren ain won wouldn shouldn couldn hasn haven hadn mustn needn mightn shan ll ve re nt
dont doesnt didnt isnt arent wasnt cant wont im ive
mr mrs ms dr st vs etc
"""

CLOSED = frozenset(_TEXT.split())
"""Lower-case words that no method replaces."""
