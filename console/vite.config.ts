import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// `npm run dev` shows the page with a server of `aici serve` behind it: AICI_SERVER=http://127.0.0.1:PORT npm run dev.
const server = process.env.AICI_SERVER;

export default defineConfig({
  base: "/console/",
  plugins: [svelte()],
  build: { target: "es2022", modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
  server: server ? { proxy: { "^/(?!console/)": server } } : {},
});
