#pragma once
// The made-up things that needles are about.

#include <set>
#include <string>
#include <vector>

#include "eval/random.h"

namespace varve::eval {

/// An adjective and a noun, "brave-otter": one of some 16,000.
std::string random_key(Random& random);
/// As random_key, but not one of `taken`, to which it is added; `taken` must leave room.
std::string new_key(Random& random, std::set<std::string>& taken);

/// `digits` decimal digits, the first not 0.
std::string random_number(Random& random, int digits);
std::string new_number(Random& random, int digits, std::set<std::string>& taken);

/// A version 4 UUID.
std::string random_uuid(Random& random);

/// `letters` letters from `first` to `first` + 25 ('a' or 'A').
std::string random_letters(Random& random, int letters, char first);

/// Given names, surnames, names of birds, invented institutes and real cities; at least 24 of each.
const std::vector<std::string>& given_names();
const std::vector<std::string>& surnames();
const std::vector<std::string>& birds();
const std::vector<std::string>& institutes();
const std::vector<std::string>& cities();

/// The different lower-case words of 4 to 12 letters in a text, in alphabetical order.
std::vector<std::string> vocabulary(std::string_view text);

}  // namespace varve::eval
