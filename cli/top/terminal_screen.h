// TerminalScreen: a terminal taken over for a while: its alternate screen, keys without their echo.
//
// What was there is put back by the destructor, so the owner must live to the end of its command
// (Interrupt turns signals into that). Owns the process's SIGWINCH meanwhile, so that there is one
// at a time. Draws lines, of which only those that differ from the last
// time are sent. One thread, but for Wake.
#pragma once

#include <signal.h>
#include <termios.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/base/terminal.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

enum class TerminalKey { kNone, kQuit, kUp, kDown, kTop, kBottom, kEnter, kBack };

// What is to be sent to a terminal that shows `before` so that it shows `after`; a line of it that
// is not mentioned is empty.
std::string RedrawText(const std::vector<std::string>& before,
                       const std::vector<std::string>& after);

// The first key in `input`, which is cut off it: a letter, or a sequence of an arrow key or the
// like. What is none of ours is skipped. kNone: nothing is left.
TerminalKey TakeKey(std::string* input);

class TerminalScreen {
 public:
  // `in` may be no terminal; then there are no keys.
  static Result<std::unique_ptr<TerminalScreen>> Open(int in, int out);
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  TerminalSize size() const;
  bool has_keys() const { return has_keys_; }

  void Draw(std::vector<std::string> lines);
  // Waits for a key for at most `limit`; kNone also when woken, or when the size has changed.
  TerminalKey ReadKey(Duration limit);
  // Any thread, once the screen is there.
  void Wake();

 private:
  TerminalScreen(int in, int out, UniqueFd wake) : in_(in), out_(out), wake_(std::move(wake)) {}
  void Send(const std::string& text);

  const int in_;
  const int out_;
  const UniqueFd wake_;
  bool has_keys_ = false;
  termios saved_{};
  struct sigaction saved_resize_ {};
  std::vector<std::string> shown_;
  TerminalSize drawn_size_;
  std::string input_;
};

}  // namespace muster
