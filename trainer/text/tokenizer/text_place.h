// TextPlace: where a text begins in what is encoded as a whole. It decides what is put in front of
// it.
//
// Pure values; any thread.
#pragma once

#include <string_view>

namespace muster {

enum class TextPlace {
  kStart,      // with nothing before it
  kInside,     // behind an added token, or another piece
  kContinued,  // behind text that it goes on from
};

// The place of a part of `whole`, which is a view into it unless it is a text of its own.
inline TextPlace PlaceOfPart(std::string_view part, std::string_view whole, TextPlace place) {
  return part.data() == whole.data() ? place : TextPlace::kInside;
}

}  // namespace muster
