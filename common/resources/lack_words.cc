#include "common/resources/lack_words.h"

#include <map>

namespace muster {

std::string_view LackWords(std::string_view lack, bool occupied) {
  struct Words {
    std::string_view has, has_free;
  };
  static const std::map<std::string_view, Words> kWords = {
      {"labels", {"other labels", "other labels"}},
      {"place", {"no known place in the network", "no known place in the network"}},
      {"device_kind", {"too few GPUs of that kind", "too few free GPUs of that kind"}},
      {"devices", {"too few GPUs", "too few free GPUs"}},
      {"slots", {"too few slots", "too few free slots"}},
      {"cpus", {"too few CPUs", "too few free CPUs"}},
      {"memory", {"too little memory", "too little free memory"}}};
  const auto words = kWords.find(lack);
  if (words == kWords.end()) return "too little";
  return occupied ? words->second.has_free : words->second.has;
}

}  // namespace muster
