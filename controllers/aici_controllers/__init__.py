"""The controllers shipped with aici, and the toolchain that builds your own."""
