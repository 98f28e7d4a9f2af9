// Segments as tests look at them.
#pragma once

#include <string>
#include <vector>

#include "trainer/text/chat/conversation.h"

namespace muster {

inline std::string WholeText(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

inline std::string TrainedText(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.trained ? segment.text : "";
  return text;
}

inline std::string ContentText(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.markup ? "" : segment.text;
  return text;
}

}  // namespace muster
