// Precompiled headers have targets of their own, which need a source (MusterPrecompile.cmake).
