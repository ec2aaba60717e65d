"""Stage one: CBCL and SelfCCL on triplets, ConSERT, SimCSE and EdaCSE on texts, classification of NLI pairs."""
