"""English text of the synthetic corpora. Written for this project; people, organisations and products are invented."""

from synthetic.grammar import (
    NerText,
    ReadingText,
    ReviewText,
    items,
    joined,
    lines,
    words,
)


# Entities

# Names that are words too: the patterns below have them in both roles.
_AMBIGUOUS = words(
    "Will May Grace Hope Mark Bill Rose Frank June April March Art Chase Reading Nice Turkey Stone Price Young King"
)
_FIRST = words(
    """
    Will May Grace Hope Mark Bill Rose Frank June April Jordan Chase Art Drew Faith Dean Sue Pat Jack Penny Victoria
    Sydney Austin Charlotte Florence Ada Agnes Alan Albert Alice Amara Andrew Anita Anna Anton Arjun Barbara Beatriz
    Ben Carlos Carmen Cecilia Charles Chen Clara Claire Colin Daniel David Diana Diego Dmitri Edith Elena Elias Ellen
    Emeka Emily Emma Erik Esther Eva Fatima Felix Fiona Gabriel George Greta Hana Hannah Harold Hassan Helen Henrik
    Henry Hiro Ibrahim Ines Ingrid Irene Isaac Ivan Jakob James Jana Jin John Joseph Julia Karim Karl Kate Keiko Kofi
    Laila Lars Laura Leo Leila Lin Linda Louis Lucia Luis Magnus Maria Marta Martin Matteo Mei Michael Mira Mohammed
    Nadia Naomi Nils Nina Noah Nora Olga Oliver Omar Oscar Otto Paul Pedro Peter Petra Priya Rachel Raj Ravi Robert
    Rosa Ruth Samir Samuel Sara Sofia Stefan Tariq Teresa Thomas Tomas Ursula Vera Viktor Wanjiru Wen Yara Yusuf Zoe
    """
) + joined(
    "Al Ber Cor Dor Em El Fer Gil Jul Kat Lor Mel Nat Or Ros Sel Val",
    "ina etta ian ius anna ard inda a ric elle ena o",
)
_LAST = words(
    """
    Jordan Banks Rivers Stone Young King Price Cook Baker Marsh Field Woods Bell Lake Church Page Abara Achebe Ahmed
    Alvarez Andersen Babbage Banerjee Bauer Becker Castillo Chen Costa Cruz Darwin Diaz Dubois Fischer Fontaine Garcia
    Gupta Haddad Hansen Hashimoto Hoang Horvath Hughes Ito Jansen Jensen Kaplan Kaya Khan Kim Klein Kumar Larsen
    Lovelace Mbeki Mehta Mendes Meyer Mohan Moreau Murphy Nakamura Nguyen Novak Okafor Oliveira Okoye Patel Petrov
    Popescu Ramos Rao Reyes Rossi Sato Schmidt Silva Singh Smith Suzuki Tanaka Torres Tran Turing Vega Wagner Walsh
    Wang Weber Yamada Yilmaz Zhang
    """
) + joined(
    "Hal Tor Lin Mar Col Whit Ash Ber Cald Dun Ed Farn Gold Hart Kess Lang Mor Nor Pres Rad Sel Thorn Ulm Vall Win",
    "berg son wick ley man stein worth dale gren ski ov ford ick ton",
)
_CITY = words(
    """
    London Paris Berlin Madrid Rome Vienna Oslo Lisbon Athens Dublin Prague Warsaw Helsinki Cairo Nairobi Lagos Accra
    Tunis Lima Quito Bogota Santiago Havana Toronto Montreal Chicago Boston Denver Seattle Austin Phoenix Dallas Sydney
    Perth Auckland Tokyo Osaka Kyoto Seoul Beijing Shanghai Shenzhen Hanoi Bangkok Manila Jakarta Mumbai Delhi Kolkata
    Karachi Dhaka Tehran Baghdad Amman Beirut Ankara Istanbul Tbilisi Kyiv Riga Vilnius Tallinn Geneva Zurich Milan
    Turin Naples Porto Seville Valencia Marseille Lyon Nice Bath Reading Leeds Bristol Florence Victoria Hamburg Munich
    """
) + joined(
    "Brook Oak Wal Elm Stan Crow Fair Green Hazel King Lam Mill Nether Old Pem Raven Shel Tar Under West",
    "haven ford ville mouth bury field bridge burgh stead minster gate combe",
)
_COUNTRY = words(
    """
    France Germany Spain Italy Austria Norway Sweden Finland Denmark Poland Hungary Romania Greece Turkey Jordan Egypt
    Kenya Ghana Nigeria Senegal Morocco Tunisia Peru Chile Brazil Argentina Colombia Cuba Mexico Canada Japan China
    India Nepal Thailand Vietnam Malaysia Indonesia Australia Iceland Ireland Portugal Estonia Latvia Croatia
    Serbia Georgia
    """
)
_BRAND = joined(
    "Nor Vel Tri Opt Sol Quan Zen Ark Cor Lum Pol Dyn Hex Ver Alt Kin Mer Syn",
    "dex tra vion onix aris ecta ium well mark path core labs star line",
)
_MAKE = joined(
    "Aur Bri Cel Dor Fen Glim Jol Kiv Lir Mov Nim Pix Riv Tav Vol Wex", "a o io ella ino ara ix ette era um"
)
_ACRONYM = [a + b + c + d for a in "BCDFGKLMNPRSTV" for b in "ABCEIO" for c in "CFLNRST" for d in ("", "A", "C", "U")][
    ::3
]

ENGLISH_NER = NerText(
    joiner=" ",
    parts={
        "first": _FIRST,
        "last": _LAST,
        "city": _CITY,
        "country": _COUNTRY,
        "brand": _BRAND,
        "make": _MAKE,
        "acronym": _ACRONYM,
    },
    shared={
        "initial": words("A. B. C. D. E. F. G. H. J. K. L. M. N. P. R. S. T. V. W."),
        "form": words(
            "Inc. Ltd. Corp. Group Holdings Systems Technologies Motors Airlines Energy Foods Pharmaceuticals Media "
            "Bank Capital Insurance Logistics Records Software Telecom"
        ),
        "number": words("2 3 4 5 7 8 9 10 X S3 S9 X5 Pro Mini Air Max One Lite"),
        "title": words("Dr. Professor Mr. Mrs. Ms. Judge President Senator Captain Mayor Minister Coach Sir Sister"),
        "role": items(
            "chief executive; spokeswoman; head coach; finance director; lead singer; chairman; "
            "professor of history; union leader; research fellow; goalkeeper; deputy mayor; foreign minister; "
            "night nurse; founder; violinist; campaign manager"
        ),
        "month": words("January February March April May June July August September October November December"),
        "weekday": words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        "year": [str(year) for year in range(1950, 2025)],
        "day": [str(day) for day in range(1, 32)],
        "count": words("two three four five seven twelve 18 20 35 40 60 120 250 400 1,200 3,000"),
        "money": items("$ 2 million; $ 45 million; 3.5 billion euros; 800,000 pounds; $ 19.99; 12 million yuan"),
        "thing": words("bridge report contract budget strike election merger concert trial exhibition vaccine storm"),
        "field": items(
            "physics; marine biology; economics; children 's books; machine learning; sculpture; medieval law; "
            "public health"
        ),
        "nationality": words(
            "French German Spanish Kenyan Japanese Brazilian Canadian Indian Polish Irish Turkish English"
        ),
        "adjective": words("large small new historic narrow busy quiet damaged wooden public local empty former"),
        "building": words(
            "bank university hospital museum station school airport library church court embassy factory"
        ),
    },
    names={
        "PER": ("PER", ["{first} {last}"] * 6 + ["{first} {initial} {last}"]),
        "FIRST": ("PER", ["{first}"]),
        "LAST": ("PER", ["{last}"]),
        "ORG": (
            "ORG",
            [
                "{brand} {form}",
                "{brand} {form}",
                "{last} {form}",
                "{last} & {last}",
                "{last} & Sons",
                "{last} Brothers",
                "{brand}",
                "{acronym}",
                "University of {city}",
                "{city} University",
                "{city} City Council",
                "Bank of {city}",
                "{city} General Hospital",
                "{city} United",
                "{city} Museum of Art",
                "{city} Police Department",
                "Royal {city} Society",
                "{last} Institute",
                "{last} Foundation",
                "{country} Football Federation",
                "National Bank of {country}",
            ],
        ),
        "COMPANY": ("ORG", ["{brand} {form}", "{last} {form}", "{brand}", "{last} & {last}", "{acronym}"]),
        "PAPER": ("ORG", ["{city} Times", "{city} Herald", "{city} Post", "Daily {last}"]),
        "TEAM": ("ORG", ["{city} United", "{city} Rovers", "{city}", "{city} Tigers", "{acronym}"]),
        "LOC": (
            "LOC",
            ["{city}"] * 6
            + ["{country}"] * 3
            + [
                "Port {city}",
                "Lake {city}",
                "Mount {last}",
                "New {city}",
                "{city} County",
                "{last} Valley",
                "{last} Island",
                "{city} Road",
                "{last} Street",
            ],
        ),
        "CITY": ("LOC", ["{city}", "{city}", "{city}", "Port {city}", "New {city}"]),
        "PRODUCT": ("PRODUCT", ["{make}", "{make} {number}", "{make} {number}", "{make} {make}"]),
    },
    sentences=lines(
        """
        {PER} was appointed {role} of {ORG} in {month} .
        {COMPANY} will open a {adjective} office in {CITY} next {month} .
        {PER} , {role} of {ORG} , denied the claim .
        {title} {LAST} told reporters in {CITY} that the {thing} would go ahead .
        {TEAM} beat {TEAM} {day} - {day} in {CITY} on {weekday} .
        police in {CITY} arrested {count} people after the {thing} .
        {COMPANY} shares fell after the company recalled its {PRODUCT} .
        the {PRODUCT} goes on sale in {LOC} for {money} .
        {PER} was born in {CITY} in {year} and studied {field} at {ORG} .
        i met {FIRST} at the station in {CITY} last {weekday} .
        {FIRST} and {FIRST} are moving to {CITY} in {month} .
        {COMPANY} agreed to buy {COMPANY} for {money} .
        {ORG} and {ORG} signed a contract worth {money} .
        the mayor of {CITY} , {PER} , opened the {adjective} {building} .
        heavy rain flooded {LOC} and parts of {LOC} on {weekday} .
        {title} {PER} teaches {field} at {ORG} .
        " {thing} first , money later , " said {PER} of {ORG} .
        a train from {CITY} to {CITY} left the rails near {LOC} .
        {PER} ( {ORG} ) won the race ahead of {PER} ( {ORG} ) .
        the {nationality} painter {PER} lived in {CITY} until {year} .
        my old {PRODUCT} broke , so i bought a {PRODUCT} in {CITY} .
        is the {PRODUCT} really better than the {PRODUCT} ?
        {COMPANY} unveiled the {PRODUCT} at a fair in {CITY} .
        the flight to {LOC} was delayed , {FIRST} wrote .
        {ORG} in {CITY} is looking for a {role} .
        dear {title} {LAST} , thank you for your letter about {ORG} .
        the border between {LOC} and {LOC} was closed in {month} .
        students of {ORG} met {PER} at the {adjective} {building} .
        {LAST} scored twice as {TEAM} won in {CITY} .
        {TEAM} signed {PER} from {TEAM} for {money} .
        {PER} and her husband , {PER} , live near {LOC} .
        the {thing} in {LOC} cost {money} , {ORG} said .
        {ORG} , founded in {year} by {PER} , has {count} employees in {LOC} .
        nobody at {COMPANY} answered the phone on {weekday} .
        i work for {COMPANY} , but my brother {FIRST} works for {COMPANY} .
        who is {PER} , and why is {ORG} suing her ?
        {PER} will play the {role} in a film about {LOC} .
        the trial of {PER} begins in {CITY} on {month} {day} .
        scientists at {ORG} tested the {PRODUCT} on {count} patients .
        {title} {LAST} and {title} {LAST} met in {CITY} for talks .
        you can fly to {CITY} from {CITY} in {count} hours .
        {PER} left {COMPANY} after {count} years to join {COMPANY} .
        the {building} on the coast of {LOC} was built in {year} .
        {COMPANY} makes the {PRODUCT} and the {PRODUCT} in {LOC} .
        in {year} {PER} climbed {LOC} without oxygen .
        {LAST} 's lawyer said {LAST} had never been to {LOC} .
        {LOC} 's government asked {ORG} for help .
        the {role} of {TEAM} , {PER} , praised {LAST} .
        ask {FIRST} whether the {PRODUCT} needs new batteries .
        {PER} reads the news on {weekday} .
        fans of {PER} waited outside the {building} in {CITY} .
        {ORG} published a report on {field} in {LOC} .
        {PER} worked with {PER} in {CITY} .
        {PER} works for {ORG} in {CITY} .
        {ORG} is based in {LOC} .
        {FIRST} bought a {PRODUCT} from {COMPANY} .
        """
    ),
    ambiguous=frozenset(_AMBIGUOUS),
    plain=lines(
        """
        will the {building} be open on {weekday} ?
        may was the driest month at the {building} since {year} .
        hope is fading after the {thing} in {month} .
        grace and patience are needed in {field} , not {field} .
        mark the date : the {thing} starts on {month} {day} .
        the bill for the {thing} came to {money} .
        frank words were heard at the {building} on {weekday} .
        the {building} raised its prices again in {month} .
        the university and the bank share a {adjective} {building} .
        a rose costs {money} in {month} .
        the president and the minister spoke about the {thing} and the {thing} .
        {nationality} lessons are held at the {building} every {weekday} .
        reading in bed on a {weekday} in {month} is a nice habit .
        the king and the bishop of {year} are {adjective} chess pieces .
        March and April were quiet at the {building} .
        we chase the bus to the {building} every {weekday} morning .
        i had turkey and rice for lunch at the {building} .
        the art of {field} takes {count} years to learn .
        in {month} {year} the {thing} was called off .
        doctors and nurses left the {adjective} {building} at noon .
        a new phone with a better screen costs {money} .
        the old city has {count} {adjective} streets and a {building} .
        young people of the north watched the {thing} on {weekday} .
        the price of stone and wood rose in {month} {year} .
        nobody knew who had paid {money} for the {thing} .
        the {nationality} team lost the last match of {year} .
        """
    ),
    openers=lines(
        """
        on {weekday} ,
        according to local media ,
        yesterday
        in {month} {year} ,
        after the {thing} ,
        breaking :
        so
        in a letter ,
        two days later ,
        """
    ),
    tails=lines(
        """
        , {title} {LAST} said .
        , according to {ORG} .
        , {PER} wrote on {weekday} .
        , officials said .
        , said {PER} .
        , the {PAPER} reports .
        !
        , sources told {ORG} .
        because of the {thing} .
        , at a cost of {money} .
        """
    ),
)


# Reviews: subject (its verb after "|") -> praise and complaint

_EN_ASPECTS = {
    "hotel": {
        "the room|was": (
            "spotless; bright and quiet; bigger than in the pictures; a delight",
            "filthy; cramped and noisy; damp; smaller than a cupboard",
        ),
        "the staff|were": (
            "kind; quick to help; wonderfully patient; professional",
            "rude; slow; nowhere to be found; careless",
        ),
        "the breakfast|was": (
            "fresh and varied; delicious; generous; worth getting up for",
            "cold; stale; a joke; overpriced",
        ),
        "the bed|was": ("soft and warm; comfortable; freshly made", "hard; broken; full of crumbs"),
        "the pool|was": ("clean; warm even in autumn; the best part", "dirty; closed all week; freezing"),
        "the view|was": ("stunning; even better at night; lovely", "depressing; of a brick wall; spoiled by a crane"),
    },
    "restaurant": {
        "the soup|was": ("rich and warming; full of flavour; perfect", "watery; far too salty; bland; lukewarm"),
        "our waiter|was": ("attentive; charming; funny and fast", "arrogant; forgetful; in a foul mood"),
        "the prices|were": ("fair; surprisingly low; honest", "outrageous; far too high; a rip-off"),
        "the fish|was": ("tender; cooked to the second; tasty", "dry; burnt; full of bones; tasteless"),
        "the table|was": ("cosy; laid with care; by the window", "sticky; next to the toilets; wobbly"),
        "the dessert|was": ("divine; light and fruity; homemade", "frozen; sickly sweet; tiny"),
    },
    "film": {
        "the plot|was": (
            "gripping; clever; moving from start to end; original",
            "thin; predictable; a mess; full of holes",
        ),
        "the acting|was": ("superb; natural; full of warmth; brilliant", "wooden; embarrassing; flat; painfully dull"),
        "the music|was": ("haunting; beautiful; well chosen", "irritating; much too loud; forgettable"),
        "the ending|was": ("touching; a real surprise; satisfying", "silly; rushed; pointless"),
        "the jokes|were": ("hilarious; fresh; well timed", "stale; crude; told in the trailer already"),
        "the camera work|was": ("daring; elegant; a feast for the eyes", "shaky; ugly; too dark to follow"),
    },
    "phone": {
        "the screen|was": ("sharp; bright even in the sun; gorgeous", "scratched on arrival; dim; blurry"),
        "the battery|was": (
            "excellent; good for two full days; a pleasant surprise",
            "dead by noon; useless; swollen",
        ),
        "the sound|was": ("crisp; clear; amazing for the size; warm", "tinny; distorted; hollow"),
        "the delivery|was": ("fast; right on time; handled with care", "late; chaotic; a nightmare"),
        "the camera|was": ("quick; great in the dark; impressive", "slow; hopeless indoors; grainy"),
        "the case|was": ("sturdy; light; nicely made", "flimsy; cracked after a week; slippery"),
    },
    "book": {
        "the author|was": ("witty; in top form; wise and humane", "long-winded; out of ideas; boring; preachy"),
        "the first chapter|was": ("thrilling; funny; the best in years", "confusing; dull; a struggle"),
        "the dialogue|was": ("lively; believable; sparkling", "stilted; endless; lifted from television"),
        "the translation|was": ("fluent; faithful; a pleasure to read", "clumsy; full of mistakes; unreadable"),
        "the heroine|was": ("brave; unforgettable; someone to root for", "annoying; a cliche; shallow"),
        "the print|was": ("clear; large; easy on the eyes", "tiny; pale; smudged on every page"),
    },
}

ENGLISH_REVIEWS = ReviewText(
    joiner=" ",
    aspects=_EN_ASPECTS,
    says=items(
        "{s} {v} {o}; i thought {s} {v} {o}; we both felt that {s} {v} {o}; i must say {s} {v} {o}; "
        "to my surprise {s} {v} {o}; everyone agreed that {s} {v} {o}; once again {s} {v} {o}; {s}, as ever, {v} {o}; "
        "it has to be said that {s} {v} {o}"
    ),
    denies=items(
        "{s} {v} hardly {o}; {s} {v} anything but {o}; nobody could claim that {s} {v} {o}; "
        "i would not say that {s} {v} {o}; {s} {v} not {o} at all; {s} {v} far from {o}"
    ),
    verdicts=(
        "i would come back tomorrow; i recommend it to everyone; five stars from me; it was worth every penny; "
        "i am glad i tried it; i would choose it again; my whole family loved it; i could not be happier; "
        "it beats everything else i have tried; i have no regrets",
        "i will not come back; i want my money back; one star is too many; it was a waste of time; "
        "i regret the whole thing; never again; my whole family hated it; i could not be more disappointed; "
        "i have tried much better; i would warn everyone",
    ),
    links=lines(
        """
        although {weak}, {strong}
        {weak}, but {strong}
        yes, {weak}; still, {strong}
        {weak}, and yet {strong}
        {strong}, even though {weak}
        """
    ),
    asides=items(
        "it was my second time this year; it was a gift from my sister; it was a Tuesday in March; "
        "a friend told me about it; i read the other reviews first; there were five of us; "
        "it was a birthday present; it took about two hours; my brother paid for it; the weather was grey that day"
    ),
)

ENGLISH_READING = ReadingText(
    kinds={"PER": "person", "ORG": "organisation", "LOC": "place", "PRODUCT": "product"},
    questions=lines(
        """
        Which {kind} is named together with {name}?
        In the sentence about {name}, which {kind} is named?
        {name} occurs in one sentence. Which {kind} does it name?
        """
    ),
)
