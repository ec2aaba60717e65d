"""Files whose content is known: git blob id, bytes, lines, path, one file a line."""

SENTEVAL = """
e202e8b09683193d4e5d7c95d697b0c244bd4cab 142650 1368 CR/custrev.neg
77b7b1bbf8cbde43f9aa0c2fef6591496f8af60d 228014 2407 CR/custrev.pos
bf5f80f135d82dd24e6083bde72236b89dcdb3bc 158902 7294 MPQA/mpqa.neg
b1a18de83ce0a60dcec35c9652a7f6e7ccd1ee51 60581 3312 MPQA/mpqa.pos
f7d3a6237e6ef91ccae2e2b754eb566b6c7830de 616109 5331 MR/rt-polarity.neg
7ee48ff3530ce6f6b3b3891a7dc262cb555273b3 629795 5331 MR/rt-polarity.pos
2d216ffcdbec5090af4b53a1a5da6daa2c87916c 441275 1726 MRPC/msr_paraphrase_test.txt
b17fe53ea36acc5d94dac91e36e0f8c3e9a2a472 1047044 4077 MRPC/msr_paraphrase_train.txt
e60e6d0a8512cc780953c8a4e2a983ab2814437c 560638 4928 SICK/SICK_test_annotated.txt
478c4793ebb4d795cd607354bf3d4682ea2b7355 506839 4501 SICK/SICK_train.txt
c25785f6d65fbc9bd5d9d03adfefe5ea830c3b57 57293 501 SICK/SICK_trial.txt
a4bf8be10595519527e6008cfdf7215fc181ef7c 94916 872 SST/binary/sentiment-dev
34f6a2396f54a504e00bbd57b43d9aac9eeb1245 194788 1821 SST/binary/sentiment-test
457f09184c977587122ab5de3b99fdbfa32b2ef1 3806066 67349 SST/binary/sentiment-train
558ba33ce6af4e9201acc3af75325f0a13506989 4500 750 STS/STS12-en-test/STS.gs.MSRpar.txt
2be7329386bccd7cd82bc4aeee63ecc3a92820c3 4500 750 STS/STS12-en-test/STS.gs.MSRvid.txt
3e7753809edbb212ad61bdc608b406490de2cbe4 2754 459 STS/STS12-en-test/STS.gs.SMTeuroparl.txt
afb2026122c9626d16f374c80e1447c462d3d14c 4500 750 STS/STS12-en-test/STS.gs.surprise.OnWN.txt
e5fbe35cacb1d2e315cc25f76e14231f81c85182 2394 399 STS/STS12-en-test/STS.gs.surprise.SMTnews.txt
7fff9e0c22be0efa34744d3628d258eb06c11ccc 168149 750 STS/STS12-en-test/STS.input.MSRpar.txt
49f14c55956b834681a5ef990b1c13ef5b9c8f22 50402 750 STS/STS12-en-test/STS.input.MSRvid.txt
62ddfa4d87fa787a543fe7db7848554086f9463c 61015 459 STS/STS12-en-test/STS.input.SMTeuroparl.txt
6fea6c16fb17235157bd091f6ef2139aca346999 68924 750 STS/STS12-en-test/STS.input.surprise.OnWN.txt
61147ac9d7e3fc52cdf58a10b0095150719e4be6 59937 399 STS/STS12-en-test/STS.input.surprise.SMTnews.txt
2691aac019e3e2250d5d909c98a7ee187dd53ec0 685 189 STS/STS13-en-test/STS.gs.FNWN.txt
d3481943da8df9af628a4bb094bdb8b1908972fc 2001 561 STS/STS13-en-test/STS.gs.OnWN.txt
384bd83bfe2f782eaa138105f9ed846e4a13d978 2716 750 STS/STS13-en-test/STS.gs.headlines.txt
641fdb1101cea2771f730fd1a32fc8251d5ff2b6 46833 189 STS/STS13-en-test/STS.input.FNWN.txt
3c72041652f88b2152e145758d8c0937346268c7 48351 561 STS/STS13-en-test/STS.input.OnWN.txt
a6b7acd00cadaca842778339a7a473a7b2a20651 69813 750 STS/STS13-en-test/STS.input.headlines.txt
6e92b9d0195b1eda00eeb3aa67702dce6c71b821 2765 750 STS/STS14-en-test/STS.gs.OnWN.txt
1a637d9a1b439b5a404342e640c5e7e9b0bf0d6a 1780 450 STS/STS14-en-test/STS.gs.deft-forum.txt
e588d4f9b3eb20575a4d7a32fef9f581e998c8c9 1058 300 STS/STS14-en-test/STS.gs.deft-news.txt
a16acaff44a397348370c9d9eb745fbf5a86ac55 2610 750 STS/STS14-en-test/STS.gs.headlines.txt
820a74b696f7fb34461fcdf67c463635f32990f4 2550 750 STS/STS14-en-test/STS.gs.images.txt
524e0a9cc813264723b808f258ab50ebe218917a 2640 750 STS/STS14-en-test/STS.gs.tweet-news.txt
e2f80e8a9600770716945bea10ceb4821b545968 69761 750 STS/STS14-en-test/STS.input.OnWN.txt
99c7f2df69df45aac6f09dbd9e63e681080cb95f 43750 450 STS/STS14-en-test/STS.input.deft-forum.txt
ad54935b7e871957ad33718cd6ffcc76e7bb95e7 63248 300 STS/STS14-en-test/STS.input.deft-news.txt
d89d3b36b6bafa89ffe0ea4f7c12d71e67e861f8 72107 750 STS/STS14-en-test/STS.input.headlines.txt
012daa191909dac039e8e0a062cc3c00864c9e70 71048 750 STS/STS14-en-test/STS.input.images.txt
9cc14c72a884adec9ee41cbb7663eefecb7b4a4e 94941 750 STS/STS14-en-test/STS.input.tweet-news.txt
003f0d382c664684fdcaef6337d59b791009fee5 3500 2000 STS/STS15-en-test/STS.gs.answers-forums.txt
9b6584dc75b2dfb11de9fdeda126791c6c101189 4500 1500 STS/STS15-en-test/STS.gs.answers-students.txt
5c92bf1206dc38a45a7c8afb7915c4491a9caa67 3500 2000 STS/STS15-en-test/STS.gs.belief.txt
ec51aa186151e9f809fb9417dfca8b4b09b81298 4500 1500 STS/STS15-en-test/STS.gs.headlines.txt
f9f4974321f44393787d908bb6c755ed9e6cbd87 4500 1500 STS/STS15-en-test/STS.gs.images.txt
e1f2b3e6899a6c9fcc17e37ad47846de5b40bcc2 357930 2000 STS/STS15-en-test/STS.input.answers-forums.txt
488f241b7a5aa2352de7823eae9292b910804924 162805 1500 STS/STS15-en-test/STS.input.answers-students.txt
9b5ff16c305818bac9ca04adbbb4ffe4e95459e1 289003 2000 STS/STS15-en-test/STS.input.belief.txt
4351ee6ca2162e451654d118774e05e2e6027175 146911 1500 STS/STS15-en-test/STS.input.headlines.txt
b10b6a0e42d6ba847c269eb6f8195d0764fe66d3 146961 1500 STS/STS15-en-test/STS.input.images.txt
2bd0d56aced5dcb1a3d955a24cd3e4294cd9572e 1826 1572 STS/STS16-en-test/STS.gs.answer-answer.txt
681c07589a7961b63af9557ce6cc4669c3882b80 1747 1498 STS/STS16-en-test/STS.gs.headlines.txt
b569ea27c8223baba8d471df7ce41a73709f49c5 1501 1271 STS/STS16-en-test/STS.gs.plagiarism.txt
fdfc8d9fb4067f2923eee9e34c03935446683aba 3531 3287 STS/STS16-en-test/STS.gs.postediting.txt
c98c18aad22bf423049f7d1e967d472e1f38a519 1764 1555 STS/STS16-en-test/STS.gs.question-question.txt
fc8a2371ac321d1fff7df3fca51f7b6d3b852ea4 151640 1572 STS/STS16-en-test/STS.input.answer-answer.txt
aa910cded9bd483226d10fb40d6bc45509d40373 149506 1498 STS/STS16-en-test/STS.input.headlines.txt
f746b9e8fd0d995763223fbfe9d5a36cccc1034e 206994 1271 STS/STS16-en-test/STS.input.plagiarism.txt
1363b08b1d940b5def428dfb262df639083c517a 808635 3287 STS/STS16-en-test/STS.input.postediting.txt
62139baea87d9dc654c38324a28ced25694662db 167903 1555 STS/STS16-en-test/STS.input.question-question.txt
df6f25ba70094d6bbe7932e86eb4b215bb477ef7 258873 1500 STS/STSBenchmark/sts-dev.csv
c91bc6cb79324513093da4980b2a52e967551a33 207065 1379 STS/STSBenchmark/sts-test.csv
fed0531eb4bb795d37778d2fb981c7869bfc2f4e 897480 5749 STS/STSBenchmark/sts-train.csv
9b565125acea6139d908d4b5636b46f5a4c0a4a2 672430 5000 SUBJ/subj.objective
e76f81108f1c751ea23fc5e66d72d21b1bab01a6 634654 5000 SUBJ/subj.subjective
3341984adbd1430eab1e78a795f0b0a7ab19f22c 23269 500 TREC/TREC_10.label
5911b5300e2b4df83afc352ec2846cb1484cfdbe 333379 5452 TREC/train_5500.label
"""
"""Below `downstream/`, as SentEval's own script leaves them (tokenised)."""

CHINESE = """
5fff90c68c7accc6287dfcad3f3b0f2a90ef94c9 3524664 39346 ATEC/atec_nlp_sim_train.csv
3bce390b3984d1ca7a75af1985d4f525c732821e 784551 10001 ATEC_CCKS/dev.csv
9b097891b2b94dee828f41edfa95e13110de6e80 784691 10001 ATEC_CCKS/test.csv
6633478a246abf29b531eca82b65e24a9fc366b9 732341 10001 BQ/dev.csv
db358c2b31c296988288c14c0410c1474f0488e2 735441 10001 BQ/test.csv
049a28c0be419d0098a72967bded9b2fdc6478d8 690285 8802 LCQMC/dev.txt
b1bd0a0311c802db6cc556c1f69b6847d13a17d4 776457 12500 LCQMC/test.txt
ca644594f715a10f4338828c07762bfb410f9710 450867 2001 PAWS-X/dev_2k.tsv
213623387713ea2f74ff46d4e4b45929773da1f6 452385 2001 PAWS-X/test_2k.tsv
2139daa29b91c3a72363beb4bdf7a2763e1c873e 206839 1458 STS-B/cnsd-sts-dev.txt
75d0f3dd79beaefc7158337b1008213ad5ab7291 167225 1361 STS-B/cnsd-sts-test.txt
66f41fdb252e3a0c2eed8486eb12fe10b1377c16 673933 5231 STS-B/cnsd-sts-train.txt
"""
"""The Chinese sets as single files of public repositories hold them."""
