// Exists so that the precompiled ATen header has a target of its own (MusterModule.cmake).
