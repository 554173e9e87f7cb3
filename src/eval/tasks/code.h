#pragma once
// A code that no text contains and that many tokens spell: "Falcon-9427-6185".

#include <set>
#include <string>

#include "eval/tasks/words.h"

namespace varve::eval {

struct VaultCode {
  std::string name;  ///< "brave-otter"
  std::string code;

  VaultCode(Random& random, std::set<std::string>& taken) : name(new_key(random, taken)) {
    code = random.pick(birds());
    for (int i = 0; i < 2; ++i) code.append(1, '-').append(new_number(random, 4, taken));
  }

  std::string sentence() const { return "The access code of the " + name + " vault is " + code + ". "; }
};

}  // namespace varve::eval
