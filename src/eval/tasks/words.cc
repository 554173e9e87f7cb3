#include "eval/tasks/words.h"

#include <sstream>
#include <string_view>

namespace varve::eval {
namespace {

constexpr const char* kAdjectives =
    "able agile alert amber ample ancient arid azure bald basic beige bitter blank bleak blunt bold brave brief bright "
    "brisk broad bronze calm candid careful casual cheap chilly civil clean clear clever close coarse cold common cool "
    "copper coral crisp crude curly curved daily damp dark dear decent deep dense direct distant double dry dull dusty "
    "eager early earnest east easy eldest empty equal even exact faint fair false famous fancy fast fierce final fine "
    "firm flat fond formal frail frank free fresh frosty full gentle giant glad golden good grand grave great green "
    "grim "
    "happy hard harsh hasty hazy heavy hidden high hollow honest huge humble icy idle ivory jolly keen kind large late "
    "lazy lean level light little lively local lone long loose loud loyal lucky lunar mellow mild misty modern modest";

constexpr const char* kNouns =
    "acorn anchor anvil apple arrow badge badger bagel banjo barley barn basin basket beacon beaver bell bench berry "
    "birch bishop blanket bonnet book boot bottle bridge brook broom bucket butter button cabin cactus camel candle "
    "canoe canyon carpet carrot castle cedar chalk cherry chimney circle clock cloud clover coach cobalt coin comet "
    "compass cookie corner cottage cradle crane crater cricket crown cushion dagger daisy desert dolphin donkey dragon "
    "drum eagle easel elbow engine fabric falcon farmer feather fence ferry fiddle flame flute forest fossil fountain "
    "garden garlic gate ginger glacier glove goose granite grape hammer hamster harbor harp hazel helmet heron hinge "
    "honey hornet island jacket jaguar kettle kitten ladder lantern lemon lizard lobster locket magnet maple marble";

std::vector<std::string> split(const char* list, char separator) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, separator);)
    if (!word.empty()) words.push_back(word);
  return words;
}

/// Draws until something new comes.
template <typename Draw>
std::string draw_new(std::set<std::string>& taken, const Draw& draw) {
  for (;;)
    if (std::string drawn = draw(); taken.insert(drawn).second) return drawn;
}

}  // namespace

std::string random_key(Random& random) {
  static const std::vector<std::string> kFirst = split(kAdjectives, ' '), kSecond = split(kNouns, ' ');
  const std::string first = random.pick(kFirst);
  return first + "-" + random.pick(kSecond);
}

std::string new_key(Random& random, std::set<std::string>& taken) {
  return draw_new(taken, [&] { return random_key(random); });
}

std::string random_number(Random& random, int digits) {
  std::string number(1, static_cast<char>('1' + random.below(9)));
  for (int i = 1; i < digits; ++i) number += static_cast<char>('0' + random.below(10));
  return number;
}

std::string new_number(Random& random, int digits, std::set<std::string>& taken) {
  return draw_new(taken, [&] { return random_number(random, digits); });
}

std::string random_uuid(Random& random) {
  std::string uuid;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) uuid += '-';
    const uint64_t nibble = i == 12 ? 4 : i == 16 ? 8 + random.below(4) : random.below(16);
    uuid += "0123456789abcdef"[nibble];
  }
  return uuid;
}

std::string random_letters(Random& random, int letters, char first) {
  std::string word;
  for (int i = 0; i < letters; ++i) word += static_cast<char>(first + static_cast<char>(random.below(26)));
  return word;
}

const std::vector<std::string>& given_names() {
  static const std::vector<std::string> kNames = split(
      "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karin Lukas Maria Nils Olga Peter Quentin Rosa Simon "
      "Tilda Ulrich Vera Walter Xenia Yusuf Zoe",
      ' ');
  return kNames;
}

const std::vector<std::string>& surnames() {
  static const std::vector<std::string> kNames = split(
      "Abbott Barlow Carver Dalton Ellis Fischer Garner Hadley Ingram Jarvis Keller Lawson Mercer Norton Osborne "
      "Palmer "
      "Quigley Ramsey Sawyer Thorne Underwood Vaughn Whitaker Yates Zimmer",
      ' ');
  return kNames;
}

const std::vector<std::string>& birds() {
  static const std::vector<std::string> kNames = split(
      "Falcon Heron Osprey Raven Sparrow Kestrel Condor Plover Curlew Bittern Gannet Jackdaw Linnet Merlin Nuthatch "
      "Oriole Pelican Robin Starling Thrush Wagtail Magpie Buzzard Puffin",
      ' ');
  return kNames;
}

const std::vector<std::string>& institutes() {
  static const std::vector<std::string> kNames = split(
      "Alder Borealis Cinder Dovetail Ember Fathom Gossamer Halcyon Isthmus Juniper Keystone Larkspur Meridian Nimbus "
      "Obsidian Palisade Quarry Redwood Sextant Tamarack Umber Verdigris Willow Zephyr",
      ' ');
  return kNames;
}

const std::vector<std::string>& cities() {
  static const std::vector<std::string> kNames = split(
      "Lisbon Oslo Vienna Dublin Prague Warsaw Athens Helsinki Zurich Hamburg Toronto Boston Denver Seattle Lima Quito "
      "Nairobi Cairo Mumbai Bangkok Seoul Osaka Sydney Perth",
      ' ');
  return kNames;
}

std::vector<std::string> vocabulary(std::string_view text) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto in_word = [&](char c) {
    return is_lower(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\'' || c == '-' || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  std::set<std::string> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    bool plain = true;
    for (; end < text.size() && in_word(text[end]); ++end) plain = plain && is_lower(text[end]);
    if (plain && end - at >= 4 && end - at <= 12) words.emplace(text.substr(at, end - at));
    at = end == at ? at + 1 : end;
  }
  return {words.begin(), words.end()};
}

}  // namespace varve::eval
