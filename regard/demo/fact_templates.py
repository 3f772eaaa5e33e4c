"""French and English templates of sentences with facts, for `fact_pairs`. A slot such as {n} or {n2} becomes a value.

n number   t time of day   d date   p price   m measure   u web address   e e-mail address   f file   c code   N name
"""

TEMPLATES = """
Le bus part à {t}. | The bus leaves at {t}.
Le vol décolle à {t} et arrive à {t2}. | The flight takes off at {t} and arrives at {t2}.
Le cours commence à {t} dans la salle {n}. | The class starts at {t} in room {n}.
Le magasin est ouvert de {t} à {t2}. | The store is open from {t} to {t2}.
Nous fermons à {t} le samedi. | We close at {t} on Saturdays.
Rendez-vous à {t} devant la gare. | Let's meet at {t} in front of the station.
Rendez-vous le {d} à {t}. | The appointment is on {d} at {t}.
La réunion aura lieu le {d} à {t}. | The meeting will take place on {d} at {t}.
La réunion est prévue pour {t} demain matin. | The meeting is scheduled for {t} tomorrow morning.
Réveille-moi à {t}. | Wake me up at {t}.
Je serai là avant {t}. | I'll be there before {t}.
Le film commence à {t} et finit à {t2}. | The movie starts at {t} and ends at {t2}.
Il est {t}. | It's {t}.
Elle est née le {d}. | She was born on {d}.
Mon anniversaire est le {d}. | My birthday is on {d}.
Le contrat commence le {d}. | The contract starts on {d}.
L'examen a lieu le {d}. | The exam is on {d}.
Nous partons le lundi {d}. | We're leaving on Monday, {d}.
La lettre est datée du {d}. | The letter is dated {d}.
Répondez avant le {d}. | Reply before {d}.
Les vacances vont du {d} au {d2}. | The vacation runs from {d} to {d2}.
Depuis le {d}, il ne fume plus. | He hasn't smoked since {d}.
L'exposition est ouverte jusqu'au {d}. | The exhibition is open until {d}.
La guerre a commencé en {n}. | The war started in {n}.
Il est mort en {n}. | He died in {n}.
Cette maison a été construite en {n}. | This house was built in {n}.
Entre {n} et {n2}, il a vécu à Paris. | Between {n} and {n2}, he lived in Paris.
L'entreprise a été fondée en {n} par deux sœurs. | The company was founded in {n} by two sisters.
D'ici la fin de l'année {n}, nous aurons fini. | By the end of the year {n}, we will be finished.
Ce livre coûte {p}. | This book costs {p}.
Ça fait {p}, s'il vous plaît. | That's {p}, please.
La facture s'élève à {p}. | The bill comes to {p}.
Le loyer est de {p} par mois. | The rent is {p} a month.
Il gagne {p} de l'heure. | He earns {p} an hour.
Le prix est passé de {p} à {p2}. | The price went from {p} to {p2}.
J'ai payé {p} pour deux billets. | I paid {p} for two tickets.
Tu me dois {p}. | You owe me {p}.
Les prix ont augmenté de {m} cette année. | Prices went up by {m} this year.
Le chômage a baissé de {m} en {n}. | Unemployment fell by {m} in {n}.
Environ {m} des élèves ont réussi. | About {m} of the students passed.
Le gouvernement a annoncé une hausse de {m} des impôts. | The government announced a {m} tax increase.
La température est de {m}. | The temperature is {m}.
Il fait {m} dehors. | It's {m} outside.
Cette nuit, il a fait {m}. | Last night it was {m}.
Il fait {n} degrés à l'ombre. | It's {n} degrees in the shade.
Le colis pèse {m}. | The package weighs {m}.
La table mesure {m} de long. | The table is {m} long.
La tour fait {n} mètres de haut. | The tower is {n} meters high.
La ville est à {m} d'ici. | The city is {m} from here.
Nous avons parcouru {n} kilomètres en {n2} heures. | We covered {n} kilometers in {n2} hours.
Il a couru {n} kilomètres en {n2} heures et {n3} minutes. | He ran {n} kilometers in {n2} hours and {n3} minutes.
La limite est de {m}. | The limit is {m}.
Ajoutez {m} de sucre et {m2} de farine. | Add {m} of sugar and {m2} of flour.
Buvez {m} d'eau par jour. | Drink {m} of water a day.
Prenez {n} comprimé toutes les {n2} heures. | Take {n} tablet every {n2} hours.
Prenez {n} comprimés de {m} {n2} fois par jour. | Take {n} tablets of {m} {n2} times a day.
Ne prenez pas plus de {n} comprimés par jour. | Don't take more than {n} tablets a day.
La dose est de {m} toutes les {n} heures. | The dose is {m} every {n} hours.
Faites cuire pendant {n} minutes à {m}. | Cook for {n} minutes at {m}.
Il y a {n} personnes dans la salle. | There are {n} people in the room.
Il y a {n} jours dans une année. | There are {n} days in a year.
Au moins {n} personnes ont été tuées. | At least {n} people were killed.
L'accident a fait {n} morts et {n2} blessés. | The accident left {n} dead and {n2} injured.
L'entreprise va supprimer {n} emplois. | The company is going to cut {n} jobs.
Plus de {n} millions de personnes ont voté. | More than {n} million people voted.
Près de {n} soldats ont été envoyés. | Nearly {n} soldiers were sent.
J'ai {n} ans. | I'm {n} years old.
Elle a {n} ans et son frère en a {n2}. | She is {n} years old and her brother is {n2}.
J'attends depuis {n} minutes. | I've been waiting for {n} minutes.
Je reviens dans {n} minutes. | I'll be back in {n} minutes.
Il reste {n} places. | There are {n} seats left.
Nous avons gagné {n} à {n2}. | We won {n} to {n2}.
Le code est {n}. | The code is {n}.
Le code de la porte est le {c}. | The door code is {c}.
Mon numéro de téléphone est le {T}. | My phone number is {T}.
Appelez-moi au {T}. | Call me at {T}.
Le train part du quai numéro {n}. | The train leaves from platform number {n}.
J'habite au {n}, rue de la Paix. | I live at {n} rue de la Paix.
Ouvrez votre livre à la page {n}. | Open your book to page {n}.
Lisez les pages {n} à {n2}. | Read pages {n} to {n2}.
Chambre {n}, au {o} étage. | Room {n}, on the {o} floor.
Il est arrivé {o}. | He came in {o}.
Visitez notre site {u} pour en savoir plus. | Visit our website {u} to learn more.
Voir {u} pour plus de détails. | See {u} for more details.
Le site {u} est en panne. | The site {u} is down.
Tout est expliqué sur {u}. | Everything is explained on {u}.
Regarde cette vidéo : {u} | Watch this video: {u}
J'ai trouvé la réponse sur {u}. | I found the answer on {u}.
Écrivez-moi à {e}. | Write to me at {e}.
Envoyez votre réponse à {e} avant le {d}. | Send your answer to {e} before {d}.
Mon adresse est {e}. | My address is {e}.
Contactez {e} ou appelez le {T}. | Contact {e} or call {T}.
J'ai envoyé un courriel à {e} hier. | I sent an email to {e} yesterday.
Ouvrez le fichier {f}. | Open the file {f}.
Télécharge {f} sur le serveur. | Download {f} on the server.
Télécharge le fichier {f} depuis {u}. | Download the file {f} from {u}.
J'ai supprimé {f} par erreur. | I deleted {f} by mistake.
Le fichier {f} est vide. | The file {f} is empty.
Enregistrez le document sous {f}. | Save the document as {f}.
La fonction {c} renvoie {n}. | The function {c} returns {n}.
La variable {c} n'est pas définie. | The variable {c} is not defined.
Utilisez l'option {c} pour continuer. | Use the option {c} to continue.
Le vol {c} a du retard. | Flight {c} is late.
Prenez la route {c} puis tournez à droite. | Take route {c} and then turn right.
La version {c} est sortie le {d}. | Version {c} came out on {d}.
Le modèle {c} coûte {p}. | The model {c} costs {p}.
{N} habite à {N2}. | {N} lives in {N2}.
Mon ami {N} est né à {N2} le {d}. | My friend {N} was born in {N2} on {d}.
Je m'appelle {N}. | My name is {N}.
{N} et {N2} se sont mariés à {N3}. | {N} and {N2} got married in {N3}.
Le professeur {N} travaille à {N2}. | Professor {N} works in {N2}.
Le docteur {N} vous recevra à {t}. | Doctor {N} will see you at {t}.
Madame {N} a perdu son chien. | Mrs. {N} lost her dog.
Monsieur {N} a appelé à {t}. | Mr. {N} called at {t}.
Le président {N} rencontrera {N2} à {N3} le {d}. | President {N} will meet {N2} in {N3} on {d}.
Nous sommes allés à {N} en {n}. | We went to {N} in {n}.
Le train pour {N} part à {t}. | The train to {N} leaves at {t}.
J'ai rencontré {N} à {N2}. | I met {N} in {N2}.
Connaissez-vous {N} ? | Do you know {N}?
Elle travaille chez {N} depuis {n}. | She has worked at {N} since {n}.
La rivière traverse {N} et {N2}. | The river runs through {N} and {N2}.
{N} a marqué {n} buts contre {N2}. | {N} scored {n} goals against {N2}.
"""
