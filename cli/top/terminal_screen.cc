#include "cli/top/terminal_screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace muster {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kEscape = '\x1b';

// An escape sequence: ESC [ parameters, and a final byte from '@' on; or ESC O and a byte.
std::size_t SequenceLength(const std::string& input) {
  if (input.size() < 2 || (input[1] != '[' && input[1] != 'O')) return 1;
  std::size_t i = 2;
  while (i < input.size() && (input[i] < '@' || input[i] > '~')) ++i;
  return std::min(i + 1, input.size());
}

TerminalKey KeyOf(const std::string& sequence) {
  if (sequence == "\x1b[A" || sequence == "\x1bOA" || sequence == "k") return TerminalKey::kUp;
  if (sequence == "\x1b[B" || sequence == "\x1bOB" || sequence == "j") return TerminalKey::kDown;
  if (sequence == "\x1b[H" || sequence == "\x1b[1~" || sequence == "g") return TerminalKey::kTop;
  if (sequence == "\x1b[F" || sequence == "\x1b[4~" || sequence == "G") return TerminalKey::kBottom;
  if (sequence == "\x1b[C" || sequence == "\x1bOC" || sequence == "\r" || sequence == "\n")
    return TerminalKey::kEnter;
  if (sequence == "\x1b" || sequence == "\x1b[D" || sequence == "\x1bOD" || sequence == "b" ||
      sequence == "\x7f")
    return TerminalKey::kBack;
  if (sequence == "q" || sequence == "Q") return TerminalKey::kQuit;
  return TerminalKey::kNone;
}

// What the handler below wakes: a descriptor of the open screen. A signal carries no argument.
std::atomic<int> resized_wake{-1};

// Whatever thread the signal comes to.
void OnResize(int) {
  const int saved = errno;
  ::eventfd_write(resized_wake.load(), 1);
  errno = saved;
}

}  // namespace

std::string RedrawText(const std::vector<std::string>& before,
                       const std::vector<std::string>& after) {
  std::string text;
  for (std::size_t row = 0; row < std::max(before.size(), after.size()); ++row) {
    const std::string old = row < before.size() ? before[row] : "";
    const std::string now = row < after.size() ? after[row] : "";
    if (old == now) continue;
    // Cleared first: behind a line as wide as the terminal the cursor is still on its last column.
    text += "\x1b[" + std::to_string(row + 1) + ";1H\x1b[K" + now + "\x1b[0m";
  }
  return text;
}

TerminalKey TakeKey(std::string* input) {
  while (!input->empty()) {
    const std::size_t length = input->front() == kEscape ? SequenceLength(*input) : 1;
    const TerminalKey key = KeyOf(input->substr(0, length));
    input->erase(0, length);
    if (key != TerminalKey::kNone) return key;
  }
  return TerminalKey::kNone;
}

Result<std::unique_ptr<TerminalScreen>> TerminalScreen::Open(int in, int out) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<TerminalScreen> screen(new TerminalScreen(in, out, std::move(wake)));
  if (::isatty(in) && ::tcgetattr(in, &screen->saved_) == 0) {
    termios raw = screen->saved_;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO));
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // stopped, it would leave the terminal as it is
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    screen->has_keys_ = ::tcsetattr(in, TCSANOW, &raw) == 0;
  }
  resized_wake = screen->wake_.get();
  struct sigaction on_resize {};
  on_resize.sa_handler = OnResize;
  on_resize.sa_flags = SA_RESTART;
  ::sigaction(SIGWINCH, &on_resize, &screen->saved_resize_);
  screen->Send(kEnter);
  return screen;
}

TerminalScreen::~TerminalScreen() {
  ::sigaction(SIGWINCH, &saved_resize_, nullptr);
  resized_wake = -1;
  Send(kLeave);
  if (has_keys_) ::tcsetattr(in_, TCSANOW, &saved_);
}

TerminalSize TerminalScreen::size() const {
  return FindTerminalSize(out_).value_or(TerminalSize{});
}

void TerminalScreen::Draw(std::vector<std::string> lines) {
  const TerminalSize now = size();
  std::string text;
  const TerminalSize before = std::exchange(drawn_size_, now);
  // A terminal that was resized shows whatever it makes of the old lines.
  if (before.columns != now.columns || before.rows != now.rows || shown_.empty()) {
    text = "\x1b[2J";
    shown_.clear();
  }
  text += RedrawText(shown_, lines);
  if (!text.empty()) Send(text);
  shown_ = std::move(lines);
}

TerminalKey TerminalScreen::ReadKey(Duration limit) {
  if (const TerminalKey key = TakeKey(&input_); key != TerminalKey::kNone) return key;
  pollfd waits[] = {{wake_.get(), POLLIN, 0}, {in_, POLLIN, 0}};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  if (::poll(waits, has_keys_ ? 2 : 1, static_cast<int>(milliseconds)) <= 0)
    return TerminalKey::kNone;
  if (waits[0].revents != 0) {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    return TerminalKey::kNone;
  }
  char bytes[256];
  const ssize_t read = ::read(in_, bytes, sizeof bytes);
  // The terminal is gone.
  if (read <= 0 && (waits[1].revents & (POLLHUP | POLLERR))) return TerminalKey::kQuit;
  if (read > 0) input_.append(bytes, static_cast<std::size_t>(read));
  return TakeKey(&input_);
}

void TerminalScreen::Wake() { ::eventfd_write(wake_.get(), 1); }

// A terminal that does not take it is gone, and ReadKey says so.
void TerminalScreen::Send(const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t written = ::write(out_, text.data() + sent, text.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    sent += static_cast<std::size_t>(written);
  }
}

}  // namespace muster
