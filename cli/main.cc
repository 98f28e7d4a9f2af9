#include "cli/app.h"
#include "cli/base/interrupt.h"

int main(int argc, char** argv) {
  muster::Interrupt interrupt;
  return muster::RunApp(argc, argv, interrupt);
}
