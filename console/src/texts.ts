// Every text that the page shows. A page's texts are in one object, so that a translation replaces one file.
export const texts = {
  title: "aici",
  skip: "Skip to the content",
  navigation: "Pages",
  pages: { chat: "Chat", playground: "Playground", nodes: "Nodes", controllers: "Controllers", metrics: "Metrics" },
  key: {
    title: "This server asks for a key",
    label: "API key",
    send: "Use this key",
    forget: "Forget the key",
    kept: "The key is kept in this tab only, until the tab is closed.",
    refused: "The server does not know this key.",
  },
  errors: {
    unreachable: "The server cannot be reached.",
    status: (status: number) => `The server answered with status ${status}.`,
  },
  loading: "Loading",
};
