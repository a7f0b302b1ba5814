#include "orthant/data/trimodal_texts.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "orthant/data/word_vocabulary.h"

namespace orthant {
namespace {

using Phrases = std::span<const std::string_view>;

// A dialogue: customer : GREETING SUBJECT, a claim or another matter, DETAIL agent : REPLY
constexpr std::string_view kCustomer = "customer :";
constexpr std::string_view kAgent = "agent :";
constexpr std::string_view kGreetings[] = {"hello ,",     "hi ,",      "good morning ,",
                                           "hey there ,", "hi team ,", "please help ,"};
constexpr std::string_view kSubjects[] = {
    "my order",      "my parcel",           "the package",         "the box i ordered",
    "the new phone", "the jacket i bought", "the gift for my son", "it"};
constexpr std::string_view kNotReceived[] = {"never arrived",
                                             "did not arrive",
                                             "has not been received",
                                             "is still missing",
                                             "never came to my door",
                                             "was not delivered to me",
                                             "is nowhere to be found",
                                             "still has not come",
                                             "did not reach me",
                                             "was never handed to me",
                                             "is not here yet",
                                             "has not shown up",
                                             "did not make it to my house",
                                             "is marked delivered but never came"};
constexpr std::string_view kOtherMatter[] = {"arrived broken",
                                             "came in the wrong color",
                                             "has been received but is too small",
                                             "reached me with a scratch",
                                             "is here but the invoice is wrong",
                                             "was delivered to me twice",
                                             "arrived and does not work",
                                             "came to my door with one part missing",
                                             "was handed to me without the charger",
                                             "has shown up in the wrong size",
                                             "made it to my house but looks used",
                                             "came but i did not like it",
                                             "is here and i want to return it",
                                             "reached me but was not as described"};
constexpr std::string_view kDetails[] = {". what can you do ?",
                                         ". i want my money back .",
                                         ". please check this for me .",
                                         ". i need an answer today .",
                                         ". i am not happy .",
                                         ". can you help ?",
                                         ". thank you ."};
constexpr std::string_view kReplies[] = {"let me look into this .",  "sorry for the trouble .",
                                         "i will check the order .", "please hold on .",
                                         "thank you for waiting .",  "i understand ."};

// A track: START . MOVE . once or twice, then lost or delivered, then AFTER
constexpr std::string_view kStarts[] = {"label created .", "order packed .", "parcel picked up .", "parcel accepted ."};
constexpr std::string_view kMoves[] = {"arrived at lyon hub .",  "departed turin hub .", "sorted in basel .",
                                       "arrived at ghent hub .", "departed porto hub .", "sorted in malmo .",
                                       "cleared customs .",      "arrived in town .",    "no change ."};
constexpr std::string_view kLost[] = {"parcel lost in transit .",   "parcel not found at hub .", "declared missing .",
                                      "destroyed in transit .",     "trace opened , missing .",  "no scan for days .",
                                      "not found , search ended .", "lost after sorting ."};
constexpr std::string_view kDelivered[] = {
    "delivered to front door .", "delivered to neighbor .", "handed to resident .",       "left in mailbox .",
    "delivered , signed .",      "collected at locker .",   "found at hub , delivered .", "left after no answer ."};
constexpr std::string_view kAfter[] = {"notice sent .", "case closed .", "survey sent .", "file stored ."};

std::size_t num_words(std::string_view text) {
  return words_of(text).size();
}

// Of the longest phrase of any of the lists.
std::size_t longest(std::initializer_list<Phrases> lists) {
  std::size_t words = 0;
  for (const Phrases list : lists) {
    for (const std::string_view phrase : list) words = std::max(words, num_words(phrase));
  }
  return words;
}

std::string_view any_of(Phrases phrases, DrawSequence& draws) {
  return phrases[draws.below(phrases.size())];
}

void append(std::string& text, std::string_view phrase) {
  if (!text.empty()) text += ' ';
  text += phrase;
}

}  // namespace

std::string dialogue_text(bool not_received, DrawSequence& draws) {
  std::string text(kCustomer);
  if (draws.below(3) != 0) append(text, any_of(kGreetings, draws));
  append(text, any_of(kSubjects, draws));
  append(text, any_of(not_received ? Phrases(kNotReceived) : Phrases(kOtherMatter), draws));
  append(text, any_of(kDetails, draws));
  append(text, kAgent);
  append(text, any_of(kReplies, draws));
  return text;
}

std::string track_text(bool lost, DrawSequence& draws) {
  std::string text(any_of(kStarts, draws));
  for (std::size_t moves = 1 + draws.below(2); moves > 0; --moves) append(text, any_of(kMoves, draws));
  append(text, any_of(lost ? Phrases(kLost) : Phrases(kDelivered), draws));
  if (draws.below(2) != 0) append(text, any_of(kAfter, draws));
  return text;
}

std::size_t dialogue_signal_words() {
  return num_words(kCustomer) + longest({kGreetings}) + longest({kSubjects}) + longest({kNotReceived, kOtherMatter});
}

std::size_t track_signal_words() {
  return longest({kStarts}) + 2 * longest({kMoves}) + longest({kLost, kDelivered});
}

std::vector<std::string> trimodal_phrases() {
  std::vector<std::string> phrases = {std::string(kCustomer), std::string(kAgent)};
  for (const Phrases list : std::initializer_list<Phrases>{kGreetings, kSubjects, kNotReceived, kOtherMatter, kDetails,
                                                           kReplies, kStarts, kMoves, kLost, kDelivered, kAfter}) {
    phrases.insert(phrases.end(), list.begin(), list.end());
  }
  return phrases;
}

}  // namespace orthant
